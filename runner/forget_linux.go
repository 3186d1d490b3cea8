package runner

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram takes the pages of this program's file out of memory that
// starting it has touched: the initialisation of packages that a supervisor
// never uses, half of its resident memory. What it needs comes back from the
// page cache.
func forgetProgram() {
	program, err := os.Readlink(procfs + "/self/exe")
	if err != nil {
		return
	}
	smaps, err := os.ReadFile(procfs + "/self/smaps")
	if err != nil {
		return
	}
	for _, m := range forgettable(string(smaps), program) {
		unix.RawSyscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

type mapping struct{ start, end uintptr }

// forgettable finds the mappings of a file that are read-only and as they are
// in the file (smaps in proc(5)). What was changed, as a position-independent
// program's data are before they become read-only, would come back unchanged
// (madvise(2), MADV_DONTNEED), so one such page rules a mapping out.
func forgettable(smaps, file string) []mapping {
	var found []mapping
	var candidate mapping
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"): // range, permissions, offset, device, inode, path
			candidate = mapping{}
			if len(fields) == 6 && fields[5] == file && fields[1][1] == '-' {
				candidate = parseRange(fields[0])
			}
		case len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0" && candidate.end > 0:
			found = append(found, candidate)
		}
	}
	return found
}

func parseRange(s string) mapping {
	from, to, _ := strings.Cut(s, "-")
	start, err1 := strconv.ParseUint(from, 16, strconv.IntSize)
	end, err2 := strconv.ParseUint(to, 16, strconv.IntSize)
	if err1 != nil || err2 != nil {
		return mapping{}
	}
	return mapping{uintptr(start), uintptr(end)}
}
