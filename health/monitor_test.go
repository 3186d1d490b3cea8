package health

import (
	"strings"
	"testing"
	"time"

	"solojob/boottime"
)

func testMonitor() (*Monitor, *boottime.Instant) {
	now := new(boottime.Instant)
	*now = boottime.Instant(time.Hour)
	m := NewMonitor()
	m.now = func() boottime.Instant { return *now }
	return m, now
}

// An agent is unhealthy until the row has been read once, and healthy from then
// on, whatever becomes of the store.
func TestUnhealthyUntilTheRowWasRead(t *testing.T) {
	m, now := testMonitor()
	loop := m.Loop("elector", 10*time.Second)
	if m.State() == nil {
		t.Error("it is healthy without having read the row")
	}
	m.RowRead()
	for range 100 { // the store is down, the loop goes on
		*now = now.Add(9 * time.Second)
		loop.Beat()
		if err := m.State(); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent one of whose loops does not move is unhealthy, and says which; when
// it moves again it is healthy again.
func TestUnhealthyWhileALoopIsStuck(t *testing.T) {
	m, now := testMonitor()
	m.RowRead()
	elector, attendant := m.Loop("elector", 10*time.Second), m.Loop("attendant", time.Minute)
	*now = now.Add(11 * time.Second)
	attendant.Beat()
	if err := m.State(); err == nil || !strings.Contains(err.Error(), "elector has not moved for 11s") {
		t.Errorf("it says %v", err)
	}
	elector.Beat()
	if err := m.State(); err != nil {
		t.Error(err)
	}
	*now = now.Add(9 * time.Second)
	elector.Beat()
	*now = now.Add(52 * time.Second)
	elector.Beat()
	if err := m.State(); err == nil || !strings.Contains(err.Error(), "attendant") {
		t.Errorf("it says %v", err)
	}
}

// What has no monitor reports to nobody.
func TestWithoutAMonitorNothingIsReported(t *testing.T) {
	var m *Monitor
	m.RowRead()
	m.Loop("elector", time.Second).Beat()
}
