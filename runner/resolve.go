package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit statuses for a command that isn't run, as shells give them (POSIX.1,
// 2.8.2) and Docker does: by the kernel's error, so a script without its
// interpreter is "not found" as well.
const (
	StatusNotExecutable = 126
	StatusNotFound      = 127
)

// ExecError says why a command can't be executed, in a sentence for the person
// who wrote it.
type ExecError struct {
	Status int    // StatusNotFound or StatusNotExecutable
	Path   string // the file, or the command's name if there is no file
	Err    error  // the sentence, without the path
}

func (e *ExecError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }
func (e *ExecError) Unwrap() error { return e.Err }

// defaultPath is what execvp(3) searches where PATH is not set.
const defaultPath = "/bin:/usr/bin"

// Resolve finds the file that a command's name means, and checks that it can
// be executed here, so that a mistake shows at once and not when the lease is
// won. The name is looked up in PATH as a shell does it; one with a slash is a
// path already. The error is an *ExecError.
//
// What passes may still fail when it is launched: files change.
func Resolve(command []string) (path string, err error) {
	if len(command) == 0 || command[0] == "" {
		return "", &ExecError{StatusNotFound, "the command", errors.New("is empty: name the program to run, after the options")}
	}
	name := command[0]
	if strings.Contains(name, "/") {
		return name, check(name, foreignFormats())
	}
	search, ok := os.LookupEnv("PATH")
	if !ok {
		search = defaultPath
	}
	var denied error
	for _, dir := range filepath.SplitList(search) {
		// An empty element is the working directory, and "./" keeps the kernel
		// from being given a bare name.
		path := filepath.Join(dir, name)
		if !strings.Contains(path, "/") {
			path = "./" + path
		}
		if err := executable(path); err == nil {
			return path, check(path, foreignFormats())
		} else if denied == nil && err.Status == StatusNotExecutable {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &ExecError{StatusNotFound, name, fmt.Errorf("is not found in PATH (%s)", search)}
}

// check tells what keeps a file from being executed: first the file itself,
// then what the kernel needs to start it. foreign says that the kernel may know
// formats that we don't.
func check(path string, foreign bool) error {
	if err := executable(path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // a program need not be readable, and then nothing more can be told
	}
	defer f.Close()
	if err := checkContent(path, f, foreign); err != nil {
		return err
	}
	return nil
}

// executable tells whether we may execute the file.
func executable(path string) *ExecError {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return &ExecError{StatusNotFound, path, errors.New("there is no such file")}
	case err != nil:
		return &ExecError{StatusNotExecutable, path, fmt.Errorf("can't be looked at: %w", reason(err))}
	case info.IsDir():
		return &ExecError{StatusNotExecutable, path, errors.New("is a directory, not a program")}
	case !info.Mode().IsRegular():
		return &ExecError{StatusNotExecutable, path, errors.New("is not a regular file")}
	}
	// The effective user's rights, on a file system that may be mounted noexec.
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		if info.Mode().Perm()&0o111 == 0 {
			return &ExecError{StatusNotExecutable, path, errors.New("is not executable: set its permission (chmod +x)")}
		}
		return &ExecError{StatusNotExecutable, path, fmt.Errorf("may not be executed by user %d: %w", os.Geteuid(), err)}
	}
	return nil
}

// reason strips the path and the call off a file error; the ExecError names the path.
func reason(err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}

// explain translates the error of an execution that failed.
func explain(path string, errno syscall.Errno) *ExecError {
	var found *ExecError
	if errors.As(check(path, false), &found) { // the kernel has judged: it knows no other format
		return found
	}
	status := StatusNotExecutable
	var why error
	switch errno {
	case syscall.ENOENT:
		status = StatusNotFound
		why = errors.New("the file, its interpreter or its loader is missing")
	case syscall.EAGAIN:
		why = errors.New("no process could be made for it: the limit of processes (pids, ulimit -u) is reached")
	case syscall.E2BIG:
		why = errors.New("its arguments and environment are too long for the kernel")
	case syscall.EINVAL:
		why = errors.New("an argument or environment variable contains a zero byte, or the file is damaged")
	case syscall.ENOEXEC:
		why = errors.New("is neither a program for this machine nor a script whose first line names an interpreter after #! at its start")
	default:
		why = errno
	}
	return &ExecError{status, path, fmt.Errorf("can't be executed: %w", why)}
}
