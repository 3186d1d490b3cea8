package runner

import (
	"reflect"
	"testing"
)

// Only mappings of the program that are as they are in its file may be
// forgotten: never writable ones, other files, or any with a changed page.
func TestOnlyUnchangedReadOnlyMappingsAreForgotten(t *testing.T) {
	const smaps = `00400000-009b4000 r-xp 00000000 fe:00 10013073                           /bin/program
Rss:                 100 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
009b4000-01025000 r--p 005b4000 fe:00 10013073                           /bin/program
Rss:                 100 kB
Anonymous:             4 kB
AnonHugePages:         0 kB
01025000-010aa000 rw-p 00c25000 fe:00 10013073                           /bin/program
Anonymous:             0 kB
010aa000-010ab000 r--p 00c25000 fe:00 10013073                           /bin/program (deleted)
Anonymous:             0 kB
c000000000-c000400000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 77                         /lib/other
Anonymous:             0 kB
7f0000002000-7f0000003000 r--p 00000000 fe:00 10013073                   /bin/program
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x9b4000}, {0x7f0000002000, 0x7f0000003000}}
	if got := forgettable(smaps, "/bin/program"); !reflect.DeepEqual(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
