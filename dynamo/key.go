package dynamo

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/leader"
)

// OnceItem is the sort key of the lease of once mode, and followed by # and a
// once-key, that of the key's own item.
const OnceItem = "once"

// Key is a once-key: what is known about running the job for it.
type Key struct {
	State    string // KeyRunning, KeyDone, KeyFailed, or "" if it was never begun
	Attempts int
	ExitCode int
}

// The states of a once-key.
const (
	KeyRunning = "running"
	KeyDone    = "done"
	KeyFailed  = "failed"
)

// ErrKeyDone is what ForgetKey returns for a key that ran successfully: it is
// remembered for ever.
var ErrKeyDone = errors.New("the key is done, and stays so")

// keyOf is the same lease's item of a once-key.
func (s *Store) keyOf(key string) *Store {
	return &Store{client: s.client, table: s.table, faults: s.faults, key: map[string]types.AttributeValue{
		"pk": s.key["pk"], "sk": text(OnceItem + "#" + key),
	}}
}

// ReadKey reads a once-key, consistently.
func (s *Store) ReadKey(ctx context.Context, key string) (Key, error) {
	k, consistent := s.keyOf(key), true
	out, err := s.client.other.GetItem(ctx, &dynamodb.GetItemInput{TableName: &k.table, Key: k.key, ConsistentRead: &consistent})
	if err != nil {
		return Key{}, k.faults.sentence(ctx, err)
	}
	return parseKey(out.Item)
}

// BeginKey raises the key's fence, and returns what the key was then. A failed
// condition, a *[leader.ConditionError], means that a later holder has it.
func (s *Store) BeginKey(ctx context.Context, key string, fence int64) (Key, error) {
	u := newUpdate()
	u.setNumber("fence", fence)
	// An earlier attempt of this very call may have been applied.
	u.where("(attribute_not_exists(" + u.name("fence") + ") OR " + u.name("fence") + " <= :fence)")
	return s.keyOf(key).updateKey(ctx, u)
}

// CountKey writes that an attempt begins, if the fence is still ours.
func (s *Store) CountKey(ctx context.Context, key string, fence int64, attempt int, owner string) error {
	u := newUpdate()
	u.setString("state", KeyRunning)
	u.setNumber("attempts", int64(attempt))
	u.setString("owner", owner)
	u.whereNumber("fence", "=", "mine", fence)
	_, err := s.keyOf(key).updateKey(ctx, u)
	return err
}

// EndKey writes how an attempt ended, if the fence is still ours.
func (s *Store) EndKey(ctx context.Context, key string, fence int64, done bool, exitCode int) error {
	u := newUpdate()
	state := KeyFailed
	if done {
		state = KeyDone
	}
	u.setString("state", state)
	u.setNumber("exit_code", int64(exitCode))
	u.whereNumber("fence", "=", "mine", fence)
	_, err := s.keyOf(key).updateKey(ctx, u)
	return err
}

// ForgetKey allows a key whose attempts are used up as many again. It returns
// what the key was, and ErrKeyDone if it ran successfully.
func (s *Store) ForgetKey(ctx context.Context, key string) (Key, error) {
	before, err := s.ReadKey(ctx, key)
	if err != nil || before.State == "" {
		return before, err
	}
	u := newUpdate()
	u.setNumber("attempts", 0)
	u.where("NOT " + u.name("state") + " = " + u.value("done", text(KeyDone)))
	_, err = s.keyOf(key).updateKey(ctx, u)
	var failed *leader.ConditionError
	if errors.As(err, &failed) {
		return before, ErrKeyDone
	}
	return before, err
}

func (s *Store) updateKey(ctx context.Context, u *update) (Key, error) {
	out, err := s.client.other.UpdateItem(ctx, u.input(s.table, s.key))
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed):
		return Key{}, &leader.ConditionError{}
	case err != nil:
		return Key{}, s.faults.sentence(ctx, err)
	}
	return parseKey(out.Attributes)
}

func parseKey(item map[string]types.AttributeValue) (Key, error) {
	p := parser{item: item}
	k := Key{State: p.text("state"), Attempts: int(p.number("attempts")), ExitCode: int(p.number("exit_code"))}
	return k, p.err("the once-key's item")
}
