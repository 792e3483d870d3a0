package accesslog

// Uses reports whether the format has the letter, so that a caller need not
// find out what nobody wants to read.
func (f *Format) Uses(letter byte) bool {
	for i := range f.items {
		if f.items[i].letter == letter {
			return true
		}
	}
	return false
}
