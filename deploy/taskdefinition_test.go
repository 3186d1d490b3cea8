// Package deploy has no code: it tests what is to be deployed against the types
// of the services that it is for.
package deploy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// apiName is what the API calls the SDK's field: the same, but for the first
// letter.
func apiName(field string) string { return strings.ToLower(field[:1]) + field[1:] }

// The placeholders of the task definition: an image, two roles, and a log group
// with its Region.
var placeholders = map[string]string{
	"REPLACE_WITH_EXECUTION_ROLE_ARN": "arn:aws:iam::111122223333:role/execution",
	"REPLACE_WITH_TASK_ROLE_ARN":      "arn:aws:iam::111122223333:role/task",
	"REPLACE_WITH_IMAGE":              "111122223333.dkr.ecr.eu-central-1.amazonaws.com/report:1",
	"REPLACE_WITH_LOG_GROUP_REGION":   "eu-central-1",
	"REPLACE_WITH_LOG_GROUP":          "/solojob/nightly-report",
}

func filledTaskDefinition(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../task-definition.json")
	if err != nil {
		t.Fatal(err)
	}
	// A name that begins another comes after it.
	for _, name := range []string{"REPLACE_WITH_EXECUTION_ROLE_ARN", "REPLACE_WITH_TASK_ROLE_ARN", "REPLACE_WITH_IMAGE", "REPLACE_WITH_LOG_GROUP_REGION", "REPLACE_WITH_LOG_GROUP"} {
		if !bytes.Contains(text, []byte(`"`+name+`"`)) {
			t.Errorf("there is no placeholder %s", name)
		}
		text = bytes.ReplaceAll(text, []byte(name), []byte(placeholders[name]))
	}
	if bytes.Contains(text, []byte("REPLACE_WITH")) {
		t.Errorf("a placeholder is left:\n%s", text)
	}
	return text
}

// The task definition registers as it stands once its placeholders are filled:
// every field is one that the SDK sends, and none is lost on the way.
func TestTaskDefinitionRegisters(t *testing.T) {
	text := filledTaskDefinition(t)
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	var input ecs.RegisterTaskDefinitionInput
	if err := strict.Decode(&input); err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	for _, f := range conform("task-definition.json", document, reflect.TypeFor[ecs.RegisterTaskDefinitionInput](), apiName) {
		t.Error(f)
	}
	var sent any
	if err := json.Unmarshal(register(t, &input), &sent); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(sent, document) {
		t.Errorf("the SDK sends\n%v\nfor\n%v", sent, document)
	}
}

// register has the SDK check and send a task definition, and returns the body.
func register(t *testing.T, input *ecs.RegisterTaskDefinitionInput) []byte {
	t.Helper()
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		io.WriteString(w, `{}`)
	}))
	defer server.Close()
	client := ecs.New(ecs.Options{
		Region: "eu-central-1", BaseEndpoint: &server.URL,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	if _, err := client.RegisterTaskDefinition(t.Context(), input); err != nil {
		t.Fatal(err)
	}
	return body
}

// The task definition has what solojob needs of one.
func TestTaskDefinitionIsFitForSolojob(t *testing.T) {
	var input ecs.RegisterTaskDefinitionInput
	if err := json.Unmarshal(filledTaskDefinition(t), &input); err != nil {
		t.Fatal(err)
	}
	checkContainer(t, input.ContainerDefinitions[0])
	if aws.ToString(input.Family) == "" {
		t.Error("there is no fixed family, within which revisions count")
	}
}

// checkContainer checks what both ways to deploy must have.
func checkContainer(t *testing.T, c types.ContainerDefinition) {
	t.Helper()
	if got := strings.Join(c.EntryPoint, " "); got != "/solojob run --" {
		t.Errorf("the entry point is %q", got)
	}
	if c.HealthCheck == nil || strings.Join(c.HealthCheck.Command, " ") != "CMD /solojob health" {
		t.Errorf("the health check is %+v", c.HealthCheck)
	}
	if aws.ToInt32(c.StopTimeout) < 30 {
		t.Errorf("stopTimeout is %d, and must be above SOLOJOB_STOP_GRACE (25 s)", aws.ToInt32(c.StopTimeout))
	}
	if c.LinuxParameters == nil || !aws.ToBool(c.LinuxParameters.InitProcessEnabled) {
		t.Error("initProcessEnabled is off")
	}
	if !aws.ToBool(c.ReadonlyRootFilesystem) {
		t.Error("the root file system is writable")
	}
	if !aws.ToBool(c.Essential) {
		t.Error("the container is not essential")
	}
	for _, v := range c.Environment {
		if aws.ToString(v.Value) == "" {
			t.Errorf("%s is set but empty, which is refused", aws.ToString(v.Name))
		}
	}
}
