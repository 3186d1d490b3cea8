package runner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// shebangMax is how much of a script the kernel reads to find its interpreter
// (BINPRM_BUF_SIZE, linux/binfmts.h).
const shebangMax = 256

// checkContent tells whether the kernel can start the file, as far as that can
// be known for sure. With foreign, the kernel may know formats that we don't,
// and what we don't recognise is left for it to judge.
func checkContent(path string, f io.ReaderAt, foreign bool) *ExecError {
	head := make([]byte, shebangMax)
	n, _ := f.ReadAt(head, 0)
	head = head[:n]
	switch {
	case n == 0:
		return &ExecError{StatusNotExecutable, path, errors.New("is empty")}
	case bytes.HasPrefix(head, []byte("#!")):
		return checkScript(path, head[2:])
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return checkELF(path, head, f, foreign)
	case foreign:
		return nil
	}
	return unknownFormat(path, head)
}

func unknownFormat(path string, head []byte) *ExecError {
	why := "is neither a program for this machine nor a script that begins with #!"
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf#!")) {
		why = "begins with a byte order mark before its #!: save it as UTF-8 without BOM"
	}
	return &ExecError{StatusNotExecutable, path, errors.New(why)}
}

// checkScript looks for the interpreter that a script names in its first line
// (execve(2), "Interpreter scripts").
func checkScript(path string, head []byte) *ExecError {
	line, _, complete := bytes.Cut(head, []byte("\n"))
	if bytes.HasSuffix(line, []byte("\r")) {
		return &ExecError{StatusNotFound, path, fmt.Errorf("its first line, #!%s, ends in a carriage return, so that no interpreter of that name exists: save the file with LF line ends (as Unix does), not CRLF", bytes.TrimSpace(line))}
	}
	fields := strings.Fields(string(line))
	if len(fields) == 0 {
		return &ExecError{StatusNotExecutable, path, errors.New("its first line, which begins with #!, names no interpreter")}
	}
	if !complete && len(fields) == 1 && len(head) == shebangMax-2 {
		return nil // the name may be cut off
	}
	if err := executable(fields[0]); err != nil {
		return &ExecError{err.Status, path, fmt.Errorf("its interpreter can't be executed: %w", err)}
	}
	return nil
}

// machines are the ELF machine numbers (elf(5)) of what we may run on and meet.
var machines = map[uint16]string{3: "386", 40: "arm", 62: "amd64", 183: "arm64", 243: "riscv64"}

// The parts of an ELF file that are looked at (elf(5)): offsets in a 64-bit one.
const (
	elfClass64    = 2
	elfMachine    = 18
	elfPhoff      = 32
	elfPhentsize  = 54
	elfPhnum      = 56
	elfHeaderSize = 64
	phType        = 0
	phOffset      = 8
	phFilesize    = 32
	phSize        = 56
	ptInterp      = 3
	interpMax     = 4096 // PATH_MAX
)

// checkELF tells a program for another machine, and one whose dynamic loader
// isn't there: the kernel says of both only ENOEXEC and ENOENT.
func checkELF(path string, head []byte, f io.ReaderAt, foreign bool) *ExecError {
	if runtime.GOOS != "linux" {
		return unknownFormat(path, head)
	}
	if len(head) < elfHeaderSize || head[4] != elfClass64 || head[5] != 1 { // 32-bit or big-endian: rare, for the kernel to judge
		return nil
	}
	machine := machines[binary.LittleEndian.Uint16(head[elfMachine:])]
	if machine != "" && machine != runtime.GOARCH {
		if foreign {
			return nil
		}
		return &ExecError{StatusNotExecutable, path, fmt.Errorf("is built for %s, but this machine is %s", machine, runtime.GOARCH)}
	}
	loader, ok := elfInterpreter(head, f)
	if !ok {
		return nil
	}
	if err := executable(loader); err != nil {
		return &ExecError{err.Status, path, fmt.Errorf("it needs the dynamic loader %s, which this image doesn't have: add the C library that it was built for (glibc or musl), or build it static", loader)}
	}
	return nil
}

// elfInterpreter reads the path of the dynamic loader, if the program has one.
func elfInterpreter(head []byte, f io.ReaderAt) (string, bool) {
	le := binary.LittleEndian
	offset := int64(le.Uint64(head[elfPhoff:]))
	size := int64(le.Uint16(head[elfPhentsize:]))
	if size < phSize {
		return "", false
	}
	for i := range int64(le.Uint16(head[elfPhnum:])) {
		var ph [phSize]byte
		if _, err := f.ReadAt(ph[:], offset+i*size); err != nil {
			return "", false
		}
		if le.Uint32(ph[phType:]) != ptInterp {
			continue
		}
		name := make([]byte, min(le.Uint64(ph[phFilesize:]), interpMax))
		if _, err := f.ReadAt(name, int64(le.Uint64(ph[phOffset:]))); err != nil {
			return "", false
		}
		return strings.TrimRight(string(name), "\x00"), len(name) > 1
	}
	return "", false
}

// foreignFormats reports whether the kernel may know further formats
// (binfmt_misc, as used to run programs for other machines under emulation).
// Which ones can't be told from inside a container.
func foreignFormats() bool {
	if runtime.GOOS != "linux" {
		return true // Mach-O and what else there is
	}
	known, err := os.ReadFile("/proc/filesystems")
	return err != nil || bytes.Contains(known, []byte("binfmt_misc"))
}
