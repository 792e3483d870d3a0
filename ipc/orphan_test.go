package ipc

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestOrphanNames(t *testing.T) {
	family := Family("/run/x/control.sock")
	table := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000016afdee3: 00000002 00000000 00010000 0005 01 21638348 " + OrphanName(family, 12) + "\n" +
		"0000000016afdee3: 00000002 00000000 00000000 0005 03 21638349 " + OrphanName(family, 12) + "\n" +
		"00000000ad51dcd9: 00000002 00000000 00010000 0005 01 21641009 " + OrphanName(family, 13) + "\n" +
		"00000000ad51dcd9: 00000002 00000000 00010000 0005 01 21641010 " + OrphanName(Family("/other"), 14) + "\n" +
		"00000000ad51dcd9: 00000003 00000000 00000000 0001 03 21641011\n" +
		"00000000ad51dcd9: 00000002 00000000 00010000 0001 01 21641012 /run/a b\n" +
		"cut off"
	got := namesIn([]byte(table), orphanPrefix+family+"/")
	if !slices.Equal(got, []string{OrphanName(family, 12), OrphanName(family, 13)}) {
		t.Errorf("%q", got)
	}
}

func FuzzOrphanNames(f *testing.F) {
	f.Add([]byte("1: 2 0 10000 5 1 7 "+OrphanName("f", 1)+"\n"), "f")
	f.Add([]byte(strings.Repeat("x", 70000)), "")
	f.Fuzz(func(t *testing.T, table []byte, family string) {
		for _, name := range namesIn(table, orphanPrefix+family+"/") {
			if !strings.HasPrefix(name, orphanPrefix) {
				t.Errorf("%q", name)
			}
		}
	})
}

// TestOrphanSocket finds this process as an orphan.
func TestOrphanSocket(t *testing.T) {
	family := Family(t.TempDir())
	socket, err := ListenOrphan(family)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	names, err := OrphanNames(family)
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}
	successor, peer, err := DialOrphan(names[0])
	if err != nil || peer.PID != os.Getpid() || peer.UID != os.Getuid() {
		t.Fatalf("%+v, %v", peer, err)
	}
	defer successor.Close()
	orphan, peer, err := socket.Accept()
	if err != nil || peer.PID != os.Getpid() {
		t.Fatalf("%+v, %v", peer, err)
	}
	defer orphan.Close()
	shm, err := CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	defer shm.Close()
	shm.SetRowOwner(3, 2, 4711)
	shm.SetColumnOwner(5, "proxy@127.0.0.1:3128")
	if err := orphan.Send(MsgOrphan, 0, Orphan{Version: Version, Slot: 1, Row: 3}, shm.FD()); err != nil {
		t.Fatal(err)
	}
	m, err := successor.Recv()
	if err != nil || m.Type != MsgOrphan || len(m.FDs) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	adopted, err := AdoptShm(m.FDs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer adopted.Close()
	if adopted.RowSupervisor(3) != os.Getpid() || adopted.RowSupervisor(4) != 0 {
		t.Errorf("supervisors %d, %d", adopted.RowSupervisor(3), adopted.RowSupervisor(4))
	}
	if adopted.RowSlot(3) != 2 || adopted.RowPID(3) != 4711 || adopted.ColumnOwner(5) != "proxy@127.0.0.1:3128" || adopted.ColumnOwner(6) != "" {
		t.Errorf("slot %d, pid %d, column %q", adopted.RowSlot(3), adopted.RowPID(3), adopted.ColumnOwner(5))
	}
	_ = orphan.Close()
	if _, err := successor.Recv(); err == nil {
		t.Error("no end")
	}
}

func TestOwnerNames(t *testing.T) {
	shm, err := CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	defer shm.Close()
	shm.SetColumnOwner(0, strings.Repeat("x", 600))
	if got := shm.ColumnOwner(0); len(got) != maxOwner {
		t.Errorf("%d bytes", len(got))
	}
	shm.SetColumnOwner(0, "y")
	if got := shm.ColumnOwner(0); got != "y" {
		t.Errorf("%q", got)
	}
	shm.SetRowOwner(1, 0, 1<<30)
	if got := shm.RowPID(1); got != 0 {
		t.Errorf("process %d", got)
	}
}
