package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"solojob/devstore"
)

// ttlLock is the control: the lock as it is usually built, with the same job under it. A row holds
// the owner and the wall-clock time at which it expires. Whoever finds it absent
// or expired takes it and runs the job; the holder renews it, and stops the job
// when somebody else has it. It has no deadline of its own and hands out no FENCE.
func ttlLock() error {
	client := &http.Client{} // no timeout, as http.DefaultClient has none
	var running *exec.Cmd
	for ; ; time.Sleep(heartbeat) {
		err := lockOrRenew(client)
		taken, refused := errors.AsType[*devstore.Error](err)
		switch {
		case err == nil && running == nil:
			running = exec.Command(os.Getenv(envSelf), PartCommand, "job")
			running.Stdout, running.Stderr = os.Stdout, os.Stderr
			if err := running.Start(); err != nil {
				return fmt.Errorf("the job can't be started: %w", err)
			}
		case refused && taken.Type == "ConditionalCheckFailedException" && running != nil:
			running.Process.Kill()
			running.Wait()
			running = nil
		case err != nil && !refused:
			fmt.Fprintln(os.Stderr, "renewal failed, will try again:", err)
		}
	}
}

// lockOrRenew takes the lock if it is free, expired or ours, for another ttl.
func lockOrRenew(client *http.Client) error {
	now := time.Now()
	_, err := devstore.Call(context.Background(), client, os.Getenv(envLock), "UpdateItem", writeRequest{
		TableName: lockTable,
		Key:       map[string]map[string]string{"pk": {"S": leaseName}, "sk": {"S": lockKey}},
		Update:    "SET #owner = :me, #expires = :then",
		Condition: "attribute_not_exists(#owner) OR #owner = :me OR #expires < :now",
		Names:     map[string]string{"#owner": "owner", "#expires": "expires"},
		Values: map[string]map[string]string{
			":me":   {"S": os.Getenv(envTask)},
			":now":  {"N": strconv.FormatInt(now.UnixMilli(), 10)},
			":then": {"N": strconv.FormatInt(now.Add(ttl).UnixMilli(), 10)},
		},
	})
	return err
}
