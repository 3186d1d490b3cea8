package proof

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Database makes an empty PostgreSQL database for one test, to be dropped with
// all its sessions when the test ends, and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	server := Need(t, Postgres)
	address, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s: %v", Postgres, err)
	}
	name := fmt.Sprintf("test_%x", time.Now().UnixNano())
	execute(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	address.Path = "/" + name
	return address.String()
}

// execute runs one statement by itself. Its context is not the test's, which ends
// before the cleanups run.
func execute(t testing.TB, server, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	connection, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect to PostgreSQL: %v", err)
	}
	defer connection.Close(ctx)
	if _, err := connection.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
