//go:build linux

package torture

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"solojob/boottime"
)

// Chaos is what befalls one world. It has one kind of trouble with processes,
// one with the network, and one with the store for each slot at a time; they
// come together as they like.
type Chaos struct {
	world  *World
	random *rand.Rand
	doing  sync.WaitGroup
	taken  map[string]bool // slot and kind of trouble, under way
	mu     sync.Mutex
}

// deed is one kind of trouble. It is begun at once, and undone by the function
// that it returns, if any, after the time.
type deed struct {
	name   string
	weight int
	area   string // process, network, store: one at a time on a slot
	lasts  bool
	begin  func(c *Chaos, s *Slot) (undo func())
}

var deeds = []deed{
	{"kill agent", 4, "process", false, kill(theAgent)},
	{"kill supervisor", 4, "process", false, kill(theSupervisor)},
	{"kill job", 3, "process", false, kill(theJob)},
	{"kill descendant", 1, "process", false, kill(aDescendant)},
	{"kill task", 2, "process", false, killTask},
	{"stop agent", 5, "process", true, freeze(theAgent)},
	{"stop supervisor", 5, "process", true, freeze(theSupervisor)},
	{"stop job", 3, "process", true, freeze(theJob, aDescendant)},
	{"stop agent and job", 2, "process", true, freeze(theAgent, theJob, aDescendant)},
	{"stop task", 5, "process", true, freezeTask},
	{"stop supervisor, kill agent", 2, "process", true, stopOneKillOther(theSupervisor, theAgent)},
	{"stop agent, kill supervisor", 2, "process", true, stopOneKillOther(theAgent, theSupervisor)},
	{"deploy", 4, "process", false, deploy},
	{"impatient deploy", 1, "process", false, deployTwice},
	{"cut network", 4, "network", true, cut},
	{"stop forwarder", 3, "network", true, stopForwarder},
	{"kill forwarder", 2, "network", false, killForwarder},
	{"bad store", 7, "store", true, badStore},
	{"bad store for all", 2, "store", true, badStoreForAll},
	{"stop all tasks", 1, "world", true, freezeAll},
	{"clock jump", 3, "wall", false, jump},
	{"clock jump for all", 1, "wall", false, jumpAll},
}

// paces are the mean times between two deeds in a world. They change, so that
// there are storms, and calms in which a lease is held and a run ends.
var paces = []time.Duration{150 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond}

// spell is the mean number of deeds at one pace.
const spell = 25

// run makes chaos until ctx is done, and returns when all of it is undone.
func (c *Chaos) run(ctx context.Context) {
	defer c.doing.Wait()
	pace := paces[1]
	for {
		if c.random.IntN(spell) == 0 {
			pace = paces[c.random.IntN(len(paces))]
		}
		wait := time.Duration(c.random.ExpFloat64() * float64(pace))
		select {
		case <-time.After(wait):
			c.strike(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// strike does one deed, if the slot that is chosen for it is not in such
// trouble already.
func (c *Chaos) strike(ctx context.Context) {
	d, s, long := c.pick(), c.victim(), c.length()
	key := s.name + d.area
	c.mu.Lock()
	busy := c.taken[key]
	if !busy {
		c.taken[key] = true
	}
	c.mu.Unlock()
	if busy {
		return
	}
	c.world.count("fault: " + d.name)
	c.world.note(boottime.Now(), "torture", "%s, of %s, for %v", d.name, s.name, long.Round(time.Millisecond))
	s.ailing.Add(1)
	if t := s.current(); t != nil && d.area == "process" {
		t.touched.Store(true)
	}
	undo := d.begin(c, s)
	c.doing.Go(func() {
		if d.lasts {
			select {
			case <-time.After(long):
			case <-ctx.Done():
			}
		}
		if undo != nil {
			undo()
			c.world.note(boottime.Now(), "torture", "%s, of %s, is over", d.name, s.name)
		}
		s.ailing.Add(-1)
		c.mu.Lock()
		delete(c.taken, key)
		c.mu.Unlock()
	})
}

func (c *Chaos) pick() deed {
	sum := 0
	for _, d := range deeds {
		sum += d.weight
	}
	n := c.random.IntN(sum)
	for _, d := range deeds {
		if n -= d.weight; n < 0 {
			return d
		}
	}
	panic("the weights do not add up")
}

// victim is the slot of the holder more often than not: there the promises are
// kept or broken.
func (c *Chaos) victim() *Slot {
	_, holder := c.world.store.current()
	slots := c.world.slots
	if i := slices.IndexFunc(slots, func(s *Slot) bool { return s.name == holder }); i >= 0 && c.random.IntN(5) < 3 {
		return slots[i]
	}
	return slots[c.random.IntN(len(slots))]
}

// length is for how long a deed lasts: milliseconds to four leases, each order
// of magnitude as often as the others.
func (c *Chaos) length() time.Duration {
	const shortest, longest = float64(5 * time.Millisecond), float64(4 * lease)
	return time.Duration(shortest * math.Exp(c.random.Float64()*math.Log(longest/shortest)))
}

func cut(c *Chaos, s *Slot) func() {
	if s.network.space < 0 {
		return stopForwarder(c, s) // the nearest thing
	}
	s.switchNetwork(false)
	return func() { s.switchNetwork(true) }
}

func (s *Slot) switchNetwork(up bool) {
	if err := s.network.set(up); err != nil {
		s.world.violate("harness", "the network of %s can't be switched: %v", s.name, err)
	}
}

func stopForwarder(_ *Chaos, s *Slot) func() {
	f := s.forwarding()
	f.signal(syscall.SIGSTOP)
	return func() { f.signal(syscall.SIGCONT) }
}

func killForwarder(_ *Chaos, s *Slot) func() {
	s.forwarding().signal(syscall.SIGKILL)
	return nil
}

func badStore(c *Chaos, s *Slot) func() {
	s.door.set(mixtures[c.random.IntN(len(mixtures))])
	return func() { s.door.set(nil) }
}

func badStoreForAll(c *Chaos, _ *Slot) func() {
	mixture := mixtures[c.random.IntN(len(mixtures))]
	for _, s := range c.world.slots {
		s.door.set(mixture)
		s.ailing.Add(1)
	}
	return func() {
		for _, s := range c.world.slots {
			s.door.set(nil)
			s.ailing.Add(-1)
		}
	}
}

// jumps are by how much a wall clock is wrong after a jump.
var jumps = []time.Duration{
	0, time.Second, -time.Second, 5 * time.Second, -5 * time.Second, time.Minute, -time.Minute,
	time.Hour, -3 * time.Hour, 24 * time.Hour,
	-30 * 365 * 24 * time.Hour, 73 * 365 * 24 * time.Hour, // to the year 2099
}

func (c *Chaos) setWall(s *Slot) {
	by := jumps[c.random.IntN(len(jumps))]
	// Renamed into its place: a clock that is read half is a fault of ours.
	if err := os.WriteFile(s.wall+".new", []byte(by.String()), 0o600); err == nil {
		err = os.Rename(s.wall+".new", s.wall)
		if err != nil {
			s.world.violate("harness", "the clock can't be set: %v", err)
		}
	}
	s.world.note(boottime.Now(), "torture", "the clock of %s is wrong by %v", s.name, by)
}

func jump(c *Chaos, s *Slot) func() {
	c.setWall(s)
	return nil
}

func jumpAll(c *Chaos, _ *Slot) func() {
	for _, s := range c.world.slots {
		c.setWall(s)
	}
	return nil
}
