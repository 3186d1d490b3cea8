package dynamo

import (
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// rowAttributes are those that an agent reads.
var rowAttributes = []string{
	"owner", "fence", "beat", "lease_ms", "draining", "revision", "announced", "since", "schedule", "through",
	"tick", "tick_state", "tick_attempt", "exit_code", "paused", "handover", "handover_now", "run_now",
}

// A row that anybody may have written by hand, with any attribute missing, of
// another type or huge, is read or refused with a sentence that names what is
// wrong. It is never misread: what is accepted says what the attributes say.
func FuzzRow(f *testing.F) {
	f.Add(uint64(0), uint64(0), "ecs1/n1", "17", "n1-0000000000000001", "30000")
	f.Add(uint64(1<<2), uint64(0), "", "9223372036854775807", "", "-1")
	f.Add(uint64(0), uint64(0), "", "9223372036854775807", "n1-0000000000000001", "30000")
	f.Add(uint64(0), uint64(0), "", "9007199254740993", "n1-0000000000000001", "30000")
	f.Add(uint64(0), uint64(0b1111), "x", "1e3", "b", "99999999999999999999")
	f.Add(^uint64(0), uint64(0), strings.Repeat("o", 4096), "NaN", "\x00", "0.5")
	f.Fuzz(func(t *testing.T, missing, wrong uint64, owner, fence, beat, lease string) {
		item := map[string]types.AttributeValue{}
		for i, name := range rowAttributes {
			if missing>>i&1 == 1 {
				continue
			}
			var v types.AttributeValue
			switch name {
			case "owner":
				v = text(owner)
			case "beat":
				v = text(beat)
			case "fence":
				v = &types.AttributeValueMemberN{Value: fence}
			case "lease_ms":
				v = &types.AttributeValueMemberN{Value: lease}
			case "tick_attempt", "exit_code":
				v = number(int64(i))
			case "draining", "paused", "handover_now":
				v = &types.AttributeValueMemberBOOL{Value: true}
			default:
				v = text("2026-01-02T03:04:05Z")
			}
			if wrong>>i&1 == 1 {
				v = &types.AttributeValueMemberL{Value: []types.AttributeValue{v}}
			}
			item[name] = v
		}
		row, err := parseRow(item)
		if err != nil {
			if row != nil || !strings.Contains(err.Error(), "damaged") {
				t.Fatalf("%+v, %v", row, err)
			}
			return
		}
		if row.Fence < 0 || row.Fence > maxFence || row.Lease < 0 || row.Beat != "" && row.Owner != "" && (row.Lease == 0 || row.Lease > maxLease) {
			t.Fatalf("accepted: %+v", row)
		}
		for i, name := range rowAttributes {
			if wrong>>i&1 == 1 && missing>>i&1 == 0 {
				t.Fatalf("%s is a list, and the row is accepted: %+v", name, row)
			}
		}
		if v, ok := item["owner"].(*types.AttributeValueMemberS); ok && v.Value != row.Owner {
			t.Fatalf("the owner is %q, read as %q", v.Value, row.Owner)
		}
		if v, ok := item["fence"].(*types.AttributeValueMemberN); ok {
			if n, err := strconv.ParseInt(v.Value, 10, 64); err != nil || n != row.Fence {
				t.Fatalf("the fence is %q, read as %d", v.Value, row.Fence)
			}
		}
	})
}
