//go:build linux

package e2e

import (
	"strings"
	"testing"
)

// With --local a laptop needs neither AWS nor a lease's name; and no variable
// of AWS's makes it ask anybody.
func TestLocalStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{
		Name: "a", Options: []string{"--local"},
		Env: map[string]string{"SOLOJOB_LEASE": "", "AWS_REGION": "", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
	})
	life := w.recorderLife(0)
	if life.Fence != 1 || life.Lease == "" {
		t.Errorf("the local job runs as %v", life)
	}
	life.Exit(3, 0)
	a.statuses = []int{3}
	if status := a.Ended(); status != 3 {
		t.Errorf("the agent ended with %d, its job with 3", status)
	}
	if a.Door.Requests() > 0 {
		t.Errorf("%d requests reached another store", a.Door.Requests())
	}
}

// On ECS --local is refused: every task would be a leader of its own.
func TestLocalStoreIsRefusedOnECS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	got := w.runToEnd(w.door(nil), Start{
		Options: []string{"--local"},
		Env:     map[string]string{"ECS_CONTAINER_METADATA_URI_V4": "http://127.0.0.1:1/v4/x"},
	})
	if got.status != 78 || !strings.Contains(got.stderr, "--local") {
		t.Errorf("ended with %d, want 78 and a word on --local", got.status)
	}
	if len(w.recorder.Lives()) > 0 {
		t.Errorf("a job was started")
	}
}

// SOLOJOB_FENCE_FLOOR is the highest FENCE ever handed out, for a lease whose
// table was lost: the first FENCE is greater.
func TestFenceFloor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	w.Start(Start{Name: "a", Env: map[string]string{"SOLOJOB_FENCE_FLOOR": "5000"}})
	if life := w.Life(1); life.Fence <= 5000 || life.Fence != w.Row().Fence() {
		t.Errorf("%v, row %d, want a FENCE above 5000", life, w.Row().Fence())
	}
}
