package runner

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// What can't be executed is refused beforehand, with the exit status that a
// shell would give, and a sentence that says what to do.
func TestResolveSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := map[string]byte{"amd64": 183, "arm64": 62}[runtime.GOARCH]
	elf := func(machine byte) string {
		head := make([]byte, elfHeaderSize)
		copy(head, "\x7fELF\x02\x01\x01")
		head[elfMachine] = machine
		return string(head)
	}
	t.Setenv("PATH", dir+":/nonexistent")
	for _, c := range []struct {
		name    string
		command string
		status  int
		says    string
	}{
		{"empty", "", StatusNotFound, "is empty"},
		{"absent", "no-such-command", StatusNotFound, "is not found in PATH"},
		{"absent path", dir + "/no-such-file", StatusNotFound, "there is no such file"},
		{"under a file", write("file", "x", 0o644) + "/x", StatusNotFound, "there is no such file"},
		{"a directory", dir, StatusNotExecutable, "is a directory"},
		{"not executable", write("plain", "#!/bin/sh\n", 0o644), StatusNotExecutable, "chmod +x"},
		{"not executable, by name", "plain", StatusNotExecutable, "chmod +x"},
		{"carriage return", write("crlf", "#!/bin/sh\r\necho hi\r\n", 0o755), StatusNotFound, "ends in a carriage return, so that no interpreter of that name exists: save the file with LF"},
		{"carriage return, by name", "crlf", StatusNotFound, "carriage return"},
		{"missing interpreter", write("orphan", "#!/no/such/interpreter -x\n", 0o755), StatusNotFound, "its interpreter can't be executed: /no/such/interpreter: there is no such file"},
		{"no interpreter", write("none", "#!\n", 0o755), StatusNotExecutable, "names no interpreter"},
		{"empty file", write("void", "", 0o755), StatusNotExecutable, "is empty"},
		{"byte order mark", write("bom", "\xef\xbb\xbf#!/bin/sh\n", 0o755), StatusNotExecutable, "byte order mark"},
		{"no format", write("text", "echo hi\n", 0o755), StatusNotExecutable, "neither a program for this machine nor a script"},
		{"another machine", write("foreign", elf(foreign), 0o755), StatusNotExecutable, "is built for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, err := Resolve([]string{c.command, "secret"})
			if err == nil && foreignFormats() {
				// The kernel here may know further formats, so Resolve leaves it
				// to judge; once it has, the sentence is the same.
				err = explain(path, syscall.ENOEXEC)
			}
			var failure *ExecError
			if !errors.As(err, &failure) {
				t.Fatalf("got %q, %v", path, err)
			}
			if failure.Status != c.status || !strings.Contains(err.Error(), c.says) {
				t.Errorf("status %d: %v", failure.Status, err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("it tells the arguments: %v", err)
			}
		})
	}
}

// What can be executed is found as a shell finds it: the first in PATH that is
// executable; an empty element is the working directory.
func TestResolveFindsWhatAShellWouldRun(t *testing.T) {
	first, second, here := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(here)
	for path, mode := range map[string]os.FileMode{
		first + "/tool":  0o644, // not executable: passed over
		second + "/tool": 0o755,
		here + "/local":  0o755,
	} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", first+":"+second+":")
	for name, want := range map[string]string{
		"tool":           second + "/tool",
		"local":          "./local",
		"./local":        "./local",
		here + "/local":  here + "/local",
		second + "/tool": second + "/tool",
	} {
		if got, err := Resolve([]string{name}); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

// A program with a dynamic loader is accepted if the loader is there, and the
// sentence names it if not.
func TestResolveLooksForTheDynamicLoader(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ELF is Linux's format")
	}
	if _, err := Resolve([]string{"/bin/sh"}); err != nil {
		t.Errorf("/bin/sh: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve([]string{self}); err != nil {
		t.Errorf("this program: %v", err)
	}
	program, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(string(program), "/ld-")
	if i < 0 {
		t.Skip("/bin/sh is static here")
	}
	copy(program[i:], "/no-")
	path := filepath.Join(t.TempDir(), "other-libc")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	var failure *ExecError
	if _, err := Resolve([]string{path}); !errors.As(err, &failure) || failure.Status != StatusNotFound || !strings.Contains(err.Error(), "dynamic loader") {
		t.Errorf("got %v", err)
	}
}
