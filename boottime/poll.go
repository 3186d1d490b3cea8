package boottime

import (
	"sync"
	"time"
)

// poll waits for at by looking at the clock again and again, because Go's own
// timers stop in a suspend.
func poll(at Instant) (<-chan struct{}, func()) {
	c, quit, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			left := at.Sub(Now())
			if left <= 0 {
				close(c)
				return
			}
			select {
			case <-time.After(min(left, recheck)):
			case <-quit:
				return
			}
		}
	}()
	return c, sync.OnceFunc(func() {
		close(quit)
		<-gone
	})
}

// recheck is how often the clock is looked at where it has no timer of its own.
const recheck = 50 * time.Millisecond
