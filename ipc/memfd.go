package ipc

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// WriteMemfd returns a memfd (memfd_create(2)) that holds data and is sealed
// against every change. The caller owns the file.
func WriteMemfd(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if _, err := file.Write(data); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("memfd: %w", err)
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = file.Close()
		return nil, os.NewSyscallError("fcntl", err)
	}
	return file, nil
}

// ReadMemfd returns the content of a memfd, which must be sealed against
// shrinking and not exceed max bytes. The descriptor remains the caller's and
// its offset is not used.
func ReadMemfd(fd int, max int64) ([]byte, error) {
	if err := checkSeals(fd); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Size > max {
		return nil, fmt.Errorf("memfd of %d bytes exceeds %d", st.Size, max)
	}
	data := make([]byte, st.Size)
	for done := 0; done < len(data); {
		n, err := unix.Pread(fd, data[done:], int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("pread", err)
		}
		if n == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		done += n
	}
	return data, nil
}

// checkSeals makes sure that the size of a memfd cannot shrink under a reader.
func checkSeals(fd int) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("not a memfd: %w", os.NewSyscallError("fcntl", err))
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("memfd is not sealed against shrinking")
	}
	return nil
}
