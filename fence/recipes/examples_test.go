package recipes_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/fence"
	"solojob/fence/internal/proof"
)

const (
	root     = "../.."
	examples = root + "/examples"
)

// The example in shell writes its totals, and as a stale run changes nothing.
func TestShellExample(t *testing.T) {
	proof.Need(t, proof.Everything)
	database := openPostgreSQL(t, nil)
	execute(t, database, read(t, examples+"/shell-postgresql/schema.sql"))
	lastWriter := func() int64 { return totalsWriter(t, database) }
	mustEndStale(t, lastWriter, database.env(), need(t, "sh"), absolute(t, examples+"/shell-postgresql/job.sh"))
}

// The procedure in the example's schema is the one on the page.
func TestSchemaIsThePages(t *testing.T) {
	schema := read(t, examples+"/shell-postgresql/schema.sql")
	procedure := schema[strings.Index(schema, "CREATE OR REPLACE PROCEDURE"):]
	for _, b := range blocks(t) {
		if strings.Contains(b.text, procedure) {
			return
		}
	}
	t.Fatalf("the procedure in schema.sql is not that of %s", page)
}

// The example in Go writes its report, and as a stale run changes nothing.
func TestGoExample(t *testing.T) {
	proof.Need(t, proof.Everything)
	store := openDynamoDB(t, false)
	binary := filepath.Join(t.TempDir(), "report")
	build(t, binary, "solojob/examples/go-dynamodb")
	mustSucceed(t, store.env(), binary, "-create-table")
	lastWriter := func() int64 { return number(t, store, "example-reports", "latest", "writer") }
	mustEndStale(t, lastWriter, store.env(), binary)
}

// mustEndStale runs a job that ends by itself, as one run after another.
func mustEndStale(t *testing.T, lastWriter func() int64, env []string, command ...string) {
	t.Helper()
	var writer int64
	for _, s := range []step{{"5", "", 0}, {"5", "", 0}, {"4", "", fence.ExitStale}, {"6", "", 0}, {"5", "", fence.ExitStale}, {"", "", anyFailure}} {
		started := start(t, root, withFence(env, s.fence), command...)
		status := started.wait(t)
		if status != s.status && (s.status != anyFailure || status == 0) {
			t.Fatalf("FENCE=%q ended with status %d, want %d:\n%s", s.fence, status, s.status, started.output())
		}
		if status == 0 {
			var err error
			if writer, err = strconv.ParseInt(s.fence, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if got := lastWriter(); got != writer {
			t.Fatalf("after FENCE=%q the last writer is %d, want %d", s.fence, got, writer)
		}
	}
}

// The example in Python counts until a newer run does; then it ends, by itself, as
// stale, and the newer one goes on.
func TestPythonExample(t *testing.T) {
	proof.Need(t, proof.Everything)
	store := openDynamoDB(t, false)
	job := []string{need(t, "python3"), absolute(t, examples+"/python-dynamodb/job.py")}
	mustSucceed(t, store.env(), append(job, "--create-table")...)
	if without := start(t, root, withFence(store.env(), ""), job...); without.wait(t) == 0 {
		t.Fatal("it ran without FENCE")
	}

	older := start(t, root, withFence(store.env(), "5"), job...)
	eventually(t, older, "it counts", func() bool { return number(t, store, "example-counters", "visits", "value") >= 2 })
	newer := start(t, root, withFence(store.env(), "6"), job...)
	if status := older.wait(t); status != fence.ExitStale {
		t.Fatalf("the older run ended with status %d, want %d:\n%s", status, fence.ExitStale, older.output())
	}
	counted := number(t, store, "example-counters", "visits", "value")
	eventually(t, newer, "the newer one goes on", func() bool {
		return number(t, store, "example-counters", "visits", "value") > counted
	})
	newer.terminate(t)
	if status := newer.wait(t); status != 0 {
		t.Fatalf("told to stop, it ended with status %d:\n%s", status, newer.output())
	}
}

// The commands on the examples' page do what it says, under the built solojob.
func TestExamplesPage(t *testing.T) {
	proof.Need(t, proof.Everything)
	bin := t.TempDir()
	build(t, filepath.Join(bin, "solojob"), "solojob")
	path := "PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH")
	sections := pageBlocks(t)
	run := func(t *testing.T, language string, env []string, what string, happened func() bool) {
		t.Helper()
		started := start(t, root, append(withFence(env, ""), path), need(t, "bash"), "-euc", sections[language])
		eventually(t, started, what, happened)
		started.terminate(t)
		started.wait(t)
	}
	t.Run("shell", func(t *testing.T) {
		database := openPostgreSQL(t, nil)
		run(t, "Shell", database.env(), "a second run has written", func() bool { return totalsWriter(t, database) >= 2 })
	})
	t.Run("python", func(t *testing.T) {
		env, store := develop(t, filepath.Join(bin, "solojob"))
		run(t, "Python", env, "it counts", func() bool { return number(t, store, "example-counters", "visits", "value") >= 2 })
	})
	t.Run("go", func(t *testing.T) {
		env, store := develop(t, filepath.Join(bin, "solojob"))
		run(t, "Go", env, "a second run has written", func() bool { return number(t, store, "example-reports", "latest", "writer") >= 2 })
	})
}

// pageBlocks are the commands of the examples' page, by the first word of the
// heading that they stand under.
func pageBlocks(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, section := range strings.Split(read(t, examples+"/README.md"), "\n## ")[1:] {
		_, commands, hasBlock := strings.Cut(section, "```sh\n")
		commands, _, ended := strings.Cut(commands, "```")
		if !hasBlock || !ended {
			t.Fatalf("this section has no commands:\n%s", section)
		}
		found[strings.Fields(section)[0]] = commands
	}
	return found
}

// develop runs `solojob dev`, and returns what it says to export.
func develop(t *testing.T, solojob string) ([]string, dynamoDB) {
	t.Helper()
	started := start(t, root, os.Environ(), solojob, "dev", "--addr", "127.0.0.1:0")
	t.Cleanup(func() { started.terminate(t); started.wait(t) })
	var env []string
	eventually(t, started, "it says what to export", func() bool {
		env = nil
		for _, line := range strings.Split(started.output(), "\n") {
			if exported, ok := strings.CutPrefix(strings.TrimSpace(line), "export "); ok {
				env = append(env, strings.Fields(exported)...)
			}
		}
		return strings.Contains(started.output(), "SOLOJOB_LEASE=")
	})
	const endpoint = "AWS_ENDPOINT_URL_DYNAMODB="
	for _, variable := range env {
		if url, ok := strings.CutPrefix(variable, endpoint); ok {
			return env, dynamoDB{url: url, db: dynamoDBClient(url)}
		}
	}
	t.Fatalf("no endpoint among %q", env)
	return nil, dynamoDB{}
}

// number reads an attribute, 0 while the table, the item or it isn't there yet.
func number(t *testing.T, s dynamoDB, table, key, attribute string) int64 {
	t.Helper()
	found, err := s.db.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String(table), ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key}},
	})
	if err != nil {
		return 0
	}
	member, ok := found.Item[attribute].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(member.Value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// totalsWriter is the fence that wrote the totals, 0 if nothing has yet.
func totalsWriter(t *testing.T, database postgreSQL) int64 {
	t.Helper()
	var writer int64
	if err := database.db.QueryRow(t.Context(), "SELECT max(by_fence) FROM daily_totals").Scan(&writer); err != nil {
		return 0
	}
	return writer
}

func execute(t *testing.T, database postgreSQL, script string) {
	t.Helper()
	if _, err := database.db.Exec(t.Context(), script); err != nil {
		t.Fatal(err)
	}
}

func mustSucceed(t *testing.T, env []string, command ...string) {
	t.Helper()
	started := start(t, root, withFence(env, ""), command...)
	if status := started.wait(t); status != 0 {
		t.Fatalf("%q ended with status %d:\n%s", command, status, started.output())
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func need(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		proof.Missing(t, tool+" is not installed")
	}
	return path
}
