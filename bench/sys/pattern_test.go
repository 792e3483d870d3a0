package sys

import "testing"

func TestPatternMatches(t *testing.T) {
	p, err := NewPattern()
	if err != nil {
		t.Fatal(err)
	}
	defer Close(p.FD)
	across := append(append([]byte{}, p.Data[PatternSize-3:]...), p.Data[:5]...)
	for _, off := range []int64{PatternSize - 3, 5*PatternSize - 3} {
		if !p.Matches(across, off) {
			t.Errorf("the pattern does not repeat at %d", off)
		}
	}
	across[7] ^= 1
	if p.Matches(across, PatternSize-3) {
		t.Error("a changed byte matches")
	}
}
