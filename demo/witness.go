package demo

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"solojob/devstore"
)

// witness turns what the store saw into entries of the chronicle. The store
// calls it with one request at a time, in the order in which they were applied.
type witness struct {
	log *chronicle

	mu      sync.Mutex
	tasks   map[*devstore.Door]string // whose door it is
	looked  map[*devstore.Door]bool   // a request through it has been noted
	living  func(task string) []*liveRun
	holders map[string]string // table → value of owner in its row
}

func newWitness(log *chronicle) *witness {
	return &witness{
		log: log, tasks: map[*devstore.Door]string{}, looked: map[*devstore.Door]bool{},
		living: func(string) []*liveRun { return nil }, holders: map[string]string{},
	}
}

// introduce says whose door a door is.
func (w *witness) introduce(d *devstore.Door, task string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks[d] = task
}

// expect has the next request through a door noted.
func (w *witness) expect(d *devstore.Door) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked[d] = false
}

// saw is the store's observer.
func (w *witness) saw(x devstore.Exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.Door != nil && !w.looked[x.Door] {
		w.looked[x.Door] = true
		w.log.add(Entry{At: x.At, Kind: Looked, Task: w.tasks[x.Door]})
	}
	switch {
	case x.Table == registerTable:
		w.sawWrite(x)
	case (x.Table == leaseTable || x.Table == lockTable) && x.Row != nil:
		w.sawLease(x)
	}
}

// sawLease notes when the row changes hands, and which runs of a task that gives it
// up still live at that instant.
func (w *witness) sawLease(x devstore.Exchange) {
	if sk := x.Row["sk"]["S"]; sk != leaseKey && sk != lockKey {
		return // something else that belongs to the lease
	}
	owner, _ := x.Row["owner"]["S"].(string)
	if owner == w.holders[x.Table] {
		return
	}
	w.holders[x.Table] = owner
	task := w.tasks[x.Door]
	if owner == "" {
		var beside []int
		for _, run := range w.living(task) {
			beside = append(beside, run.id)
		}
		w.log.add(Entry{At: x.At, Kind: Released, Task: task, Beside: beside})
		return
	}
	n, _ := x.Row["fence"]["N"].(string)
	fence, _ := strconv.ParseInt(n, 10, 64) // the control's lock has none: 0
	w.log.add(Entry{At: x.At, Kind: Acquired, Task: task, Fence: fence})
}

// sawWrite notes what became of a job's write to the register.
func (w *witness) sawWrite(x devstore.Exchange) {
	var in writeRequest
	if json.Unmarshal(x.Request, &in) != nil {
		return
	}
	e := Entry{At: x.At, Kind: Accepted, Task: in.Values[":task"]["S"]}
	e.Run, _ = strconv.Atoi(in.Values[":run"]["N"])
	e.Fence, _ = strconv.ParseInt(in.Values[":fence"]["N"], 10, 64)
	if x.Status != http.StatusOK {
		e.Kind = Refused
	}
	w.log.add(e)
}
