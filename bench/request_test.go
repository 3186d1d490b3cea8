package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"solojob/dynamo"
	"solojob/leader"
)

// row is a lease item as DynamoDB replies it, and replies are those of the two
// requests that an idle agent sends.
const row = `{"pk":{"S":"nightly"},"sk":{"S":"lease"},"owner":{"S":"0123456789abcdef0123456789abcdef/0123456789abcdef"},"fence":{"N":"42"},"beat":{"S":"0123456789abcdef-0000000000001234"},` +
	`"lease_ms":{"N":"30000"},"draining":{"BOOL":false},"since":{"S":"2026-01-02T03:04:05Z"},"renewed":{"S":"2026-01-02T03:04:05Z"},"schedule":{"S":"*/5 * * * * UTC"},` +
	`"through":{"S":"2026-01-02T03:04:05Z"},"tick":{"S":"2026-01-02T03:00:00Z"},"tick_state":{"S":"done"},"tick_attempt":{"N":"1"},"exit_code":{"N":"0"}}`

// answering is a store that has one answer.
func answering(b *testing.B, reply string) *dynamo.Store {
	checksum := fmt.Sprint(crc32.ChecksumIEEE([]byte(reply)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amz-Crc32", checksum)
		io.WriteString(w, reply)
	}))
	b.Cleanup(server.Close)
	client, err := dynamo.ConnectLocal(b.Context(), server.URL)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	return client.Lease("solojob", "nightly", dynamo.LeaseItem)
}

// BenchmarkPoll is what a poll of a standby costs: a request built, signed, sent
// over loopback and answered, and the reply read. The store's part is in it.
func BenchmarkPoll(b *testing.B) {
	s := answering(b, `{"Item":`+row+`}`)
	b.ReportAllocs()
	for b.Loop() {
		if r, err := s.Read(b.Context(), false); err != nil || r.Fence != 42 {
			b.Fatal(r, err)
		}
	}
}

// BenchmarkHeartbeat is the same for a renewal, with the state of a schedule.
func BenchmarkHeartbeat(b *testing.B) {
	s := answering(b, `{"Attributes":`+row+`}`)
	code := 0
	renewal := leader.Renewal{
		Owner: "0123456789abcdef0123456789abcdef/0123456789abcdef", Fence: 42, Beat: "0123456789abcdef-0000000000001235", Wall: time.Now(),
		Record: leader.Record{Schedule: "*/5 * * * * UTC", Through: "2026-01-02T03:04:05Z", Tick: "2026-01-02T03:00:00Z", TickState: "done", Attempt: 1, ExitCode: &code},
	}
	b.ReportAllocs()
	for b.Loop() {
		if r, err := s.Renew(b.Context(), renewal); err != nil || r.Fence != 42 {
			b.Fatal(r, err)
		}
	}
}
