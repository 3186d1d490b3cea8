package demo

import (
	"slices"
	"testing"

	"solojob/devstore"
)

// The lease changes hands when the owner in its own row changes, and by no
// other write: renewals, and rows of other kinds under the same lease, are none of it.
func TestOnlyTheLeaseRowChangesHands(t *testing.T) {
	s, err := devstore.Start(t.Context(), devstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log := newChronicle()
	w := newWitness(log)
	w.living = func(task string) []*liveRun { return []*liveRun{{id: 7}} }
	doors := map[string]*devstore.Door{}
	for _, name := range []string{"A", "B"} {
		d, err := s.Listen()
		if err != nil {
			t.Fatal(err)
		}
		doors[name] = d
		w.introduce(d, name)
	}
	put := func(task, sk, owner, fence string) {
		w.saw(devstore.Exchange{
			Door: doors[task], Operation: "UpdateItem", Status: 200, Table: leaseTable,
			Row: devstore.Item{"sk": {"S": sk}, "owner": {"S": owner}, "fence": {"N": fence}},
		})
	}
	put("A", leaseKey, "host/a", "1")
	put("A", leaseKey, "host/a", "1") // a renewal
	put("A", "run#1", "host/x", "9")
	put("A", leaseKey, "", "1")
	put("B", leaseKey, "host/b", "2")
	var changes []Entry
	for _, e := range log.all() {
		if e.Kind == Acquired || e.Kind == Released {
			changes = append(changes, Entry{Kind: e.Kind, Task: e.Task, Fence: e.Fence, Beside: e.Beside})
		}
	}
	want := []Entry{{Kind: Acquired, Task: "A", Fence: 1}, {Kind: Released, Task: "A", Beside: []int{7}}, {Kind: Acquired, Task: "B", Fence: 2}}
	if !slices.EqualFunc(changes, want, func(a, b Entry) bool {
		return a.Kind == b.Kind && a.Task == b.Task && a.Fence == b.Fence && slices.Equal(a.Beside, b.Beside)
	}) {
		t.Errorf("the lease changes hands as %+v; want %+v", changes, want)
	}
}
