package recipes_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"solojob/fence"
	"solojob/fence/internal/proof"
)

// Every code block of the page runs, and those that say they fence do.
func TestEveryBlockOfThePage(t *testing.T) {
	all := blocks(t) // first: that each says how it is run holds anywhere
	proof.Need(t, proof.Everything)
	if len(all) == 0 {
		t.Fatalf("%s has no code blocks", page)
	}
	for _, b := range all {
		t.Run(b.name(), func(t *testing.T) {
			job := prepare(t, b)
			job.store = open(t, b, all)
			switch b.mode {
			case "setup":
				setUp(t, b, job)
			case "fenced":
				mustBeFenced(t, job)
			case "idempotent":
				mustBeIdempotent(t, job)
			case "at most once":
				mustSendAtMostOnce(t, job)
			}
		})
	}
}

// step is one run of a block, and how it has to end.
type step struct {
	fence  string // not set if empty
	total  string
	status int // anyFailure for one that is not 0
}

const anyFailure = -1

// mustBeFenced runs a block as one run after another: what a newer run or the same
// one writes arrives, what an older one writes is refused with the status of a stale
// run and changes nothing, and without a FENCE nothing is written at all.
func mustBeFenced(t *testing.T, job recipe) {
	t.Helper()
	var total string
	for _, s := range []step{
		{"5", "10", 0}, {"5", "20", 0}, {"4", "30", fence.ExitStale}, {"6", "40", 0}, {"5", "50", fence.ExitStale},
		{"", "60", anyFailure},
	} {
		job.write(t, "report.csv", s.total)
		status, output := job.run(t, s.fence, "TOTAL="+s.total)
		if status != s.status && (s.status != anyFailure || status == 0) {
			t.Fatalf("FENCE=%q ended with status %d, want %d:\n%s", s.fence, status, s.status, output)
		}
		if s.status == fence.ExitStale && output == "" {
			t.Errorf("FENCE=%q was refused without a word", s.fence)
		}
		if status == 0 {
			total = s.total
		}
		if got := job.store.total(t); got != total {
			t.Fatalf("after FENCE=%q the store holds %q, want %q:\n%s", s.fence, got, total, output)
		}
	}
}

// mustBeIdempotent runs a block twice for one tick, the second time as a run that
// starts over under a higher fence, and once for the next tick: two effects in all.
func mustBeIdempotent(t *testing.T, job recipe) {
	t.Helper()
	for _, s := range []struct{ fence, tick, effects string }{
		{"5", "2026-11-29T03:00:00Z", "1"}, {"6", "2026-11-29T03:00:00Z", "1"}, {"7", "2026-11-30T03:00:00Z", "2"},
	} {
		status, output := job.run(t, s.fence, "SOLOJOB_RUN_TICK="+s.tick)
		if status != 0 {
			t.Fatalf("FENCE=%s ended with status %d:\n%s", s.fence, status, output)
		}
		if got := job.store.total(t); got != s.effects {
			t.Fatalf("after FENCE=%s the API has done it %s times, want %s", s.fence, got, s.effects)
		}
	}
}

// mustSendAtMostOnce runs a block with a sendmail that only counts: one message for
// each day, whoever starts over, and none by a stale run.
func mustSendAtMostOnce(t *testing.T, job recipe) {
	t.Helper()
	mails := filepath.Join(job.folder, "mails")
	job.tool(t, "sendmail", "#!/bin/sh\necho mail >>"+mails+"\n")
	job.write(t, "report.eml", "Subject: report\n\n")
	for _, s := range []struct {
		fence, day   string
		status, sent int
	}{{"5", "1", 0, 1}, {"5", "1", 0, 1}, {"6", "1", 0, 1}, {"5", "2", fence.ExitStale, 1}, {"6", "2", 0, 2}} {
		status, output := job.run(t, s.fence, "DAY="+s.day)
		if status != s.status {
			t.Fatalf("FENCE=%s DAY=%s ended with status %d, want %d:\n%s", s.fence, s.day, status, s.status, output)
		}
		lines, err := os.ReadFile(mails)
		if err != nil {
			t.Fatal(err)
		}
		if sent := bytes.Count(lines, []byte("\n")); sent != s.sent {
			t.Fatalf("after FENCE=%s DAY=%s, %d mails are sent, want %d", s.fence, s.day, sent, s.sent)
		}
	}
}

// setUp runs a block that only prepares: SQL where the database was opened, which
// has run it already; anything else here.
func setUp(t *testing.T, b block, job recipe) {
	t.Helper()
	if b.language == "sql" {
		return
	}
	if status, output := job.run(t, ""); status != 0 {
		t.Fatalf("ended with status %d:\n%s", status, output)
	}
}

// recipe is a block that is ready to be run.
type recipe struct {
	folder  string
	command []string
	store   store
}

// prepare writes a block into a folder, and looks for the tool that runs it.
func prepare(t *testing.T, b block) recipe {
	t.Helper()
	job := recipe{folder: t.TempDir()}
	if err := os.Mkdir(filepath.Join(job.folder, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	switch b.language {
	case "sql": // run where the database is opened
	case "bash":
		prepareBash(t, b, job)
		job.write(t, "recipe.sh", b.text)
		job.command = []string{need(t, "bash"), "-eu", "recipe.sh"}
	case "python":
		job.write(t, "recipe.py", b.text)
		python := need(t, "python3")
		module := map[string]string{"dynamodb": "boto3", "postgresql": "psycopg"}[b.store]
		if err := exec.Command(python, "-c", "import "+module).Run(); err != nil {
			proof.Missing(t, "python3 has no "+module)
		}
		job.command = []string{python, "recipe.py"}
	case "js":
		job.write(t, "recipe.mjs", b.text)
		if err := os.Symlink(proof.Need(t, proof.NodeModules), filepath.Join(job.folder, "node_modules")); err != nil {
			t.Fatal(err)
		}
		job.command = []string{need(t, "node"), "recipe.mjs"}
	case "go":
		job.write(t, "recipe.go", b.text)
		job.command = []string{filepath.Join(job.folder, "recipe")}
		build(t, job.command[0], filepath.Join(job.folder, "recipe.go"))
	default:
		t.Fatalf("%s:%d: no way is known to run %q", page, b.line, b.language)
	}
	return job
}

// prepareBash looks for the commands that a shell recipe uses.
func prepareBash(t *testing.T, b block, job recipe) {
	t.Helper()
	for _, tool := range []string{"aws", "psql", "jq", "curl"} {
		if strings.Contains(b.text, tool+" ") {
			need(t, tool)
		}
	}
	if strings.Contains(b.text, "aws ") {
		// Before 2.13 the CLI knows no AWS_ENDPOINT_URL_DYNAMODB, and Debian 12
		// has an older one; a recipe is not the place for --endpoint-url.
		job.tool(t, "aws", `#!/bin/sh
case $1 in
  dynamodb) exec `+need(t, "aws")+` --endpoint-url "$AWS_ENDPOINT_URL_DYNAMODB" "$@" ;;
  *) exec `+need(t, "aws")+` --endpoint-url "$AWS_ENDPOINT_URL_S3" "$@" ;;
esac
`)
	}
	if b.needs != "" {
		help := exec.Command(need(t, "aws"), "s3api", "put-object", "--bucket", "b", "--key", "k", "--if-match", "e", "--generate-cli-skeleton")
		if output, err := help.CombinedOutput(); err != nil {
			t.Skipf("this AWS CLI is older than the recipe, as the page says: %v: %s", err, output)
		}
	}
	if strings.Contains(b.text, "solojob ") {
		build(t, filepath.Join(job.folder, "bin", "solojob"), "solojob")
	}
}

// build compiles what a recipe needs of this module.
func build(t *testing.T, binary, source string) {
	t.Helper()
	if output, err := exec.Command("go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
}

func (r recipe) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tool puts a command before those of the machine.
func (r recipe) tool(t *testing.T, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, "bin", name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// run runs the recipe to its end, and returns its exit status and all it said.
func (r recipe) run(t *testing.T, f string, env ...string) (int, string) {
	t.Helper()
	path := "PATH=" + filepath.Join(r.folder, "bin") + string(filepath.ListSeparator) + os.Getenv("PATH")
	all := append(append(r.store.env(), path), env...)
	started := start(t, r.folder, withFence(all, f), r.command...)
	status := started.wait(t)
	return status, started.output()
}
