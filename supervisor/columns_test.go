package supervisor

import (
	"fmt"
	"testing"

	"3proxyd/ipc"
)

func TestColumns(t *testing.T) {
	shm, err := ipc.CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	defer shm.Close()
	shm.SetRows(2)
	c := newColumns(shm)
	first, err := c.assign([]string{"a", "b"}, nil)
	if err != nil || first[0] == first[1] {
		t.Fatalf("columns %v, %v", first, err)
	}
	again, _ := c.assign([]string{"b", "c"}, map[string]bool{"a": true})
	if again[0] != first[1] || again[1] == first[0] || again[1] == first[1] {
		t.Errorf("columns %v after %v", again, first)
	}

	// Fill the table: only the columns of idle services that are gone are
	// given away, and their totals are kept.
	shm.Cell(0, first[0]).Add(ipc.Accepted, 7)
	shm.Cell(1, first[1]).Add(ipc.Open, 1)
	many := make([]string, ipc.MaxColumns-1)
	for i := range many {
		many[i] = fmt.Sprint("service ", i)
	}
	cols, err := c.assign(many[:len(many)-1], nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, col := range cols {
		if col == first[1] {
			t.Fatal("the column of a service with an open session was given away")
		}
	}
	if _, err := c.assign(append(many, "one", "two"), nil); err == nil {
		t.Error("more services than columns were counted")
	}
	if c.past[0] == nil || c.past[0][ipc.Accepted] != 7 {
		t.Error("the totals of a retired column were lost")
	}
	if got := shm.Cell(0, first[0]).Get(ipc.Accepted); got != 0 {
		t.Errorf("a column was given away with %d", got)
	}
}
