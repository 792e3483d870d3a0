package supervisor

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// machines are the ELF machines of the architectures the daemon is built for.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkBinary says why a file cannot be executed here, in better words than
// execve(2) has.
func checkBinary(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a file")
	}
	if unix.Access(path, unix.X_OK) != nil {
		return errors.New("it is not executable for this user")
	}
	program, err := elf.Open(path)
	if err != nil {
		return nil // a script, or for execve(2) to complain about
	}
	defer program.Close()
	if want, known := machines[runtime.GOARCH]; known && program.Machine != want {
		return fmt.Errorf("it is built for another architecture: %v instead of %v", program.Machine, want)
	}
	return nil
}
