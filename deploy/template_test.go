package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"go.yaml.in/yaml/v3"
)

// template is the CloudFormation template, its short forms (!Ref) written out
// ({"Ref": …}).
func template(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("cloudformation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	document, ok := writtenOut(t, root.Content[0]).(map[string]any)
	if !ok {
		t.Fatal("the template is no object")
	}
	return document
}

func writtenOut(t *testing.T, n *yaml.Node) any {
	t.Helper()
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		t.Fatalf("line %d: CloudFormation knows no anchors and aliases", n.Line)
	}
	var value any
	switch n.Kind {
	case yaml.MappingNode:
		object := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if _, twice := object[name]; twice {
				t.Errorf("line %d: %q is there twice", n.Content[i].Line, name)
			}
			object[name] = writtenOut(t, n.Content[i+1])
		}
		value = object
	case yaml.SequenceNode:
		list := []any{}
		for _, element := range n.Content {
			list = append(list, writtenOut(t, element))
		}
		value = list
	default:
		// YAML 1.1, which CloudFormation reads, takes these for booleans.
		if slices.Contains([]string{"yes", "no", "on", "off"}, strings.ToLower(n.Value)) && n.Style == 0 {
			t.Errorf("line %d: %s must be quoted", n.Line, n.Value)
		}
		plain := *n
		if short(n.Tag) {
			plain.Tag = ""
		}
		if err := plain.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	if !short(n.Tag) {
		return value
	}
	function := strings.TrimPrefix(n.Tag, "!")
	if function == "GetAtt" {
		parts := strings.SplitN(value.(string), ".", 2)
		value = []any{parts[0], parts[1]}
	}
	if function != "Ref" && function != "Condition" {
		function = "Fn::" + function
	}
	return map[string]any{function: value}
}

// short reports whether a tag is one of CloudFormation's, not of YAML's.
func short(tag string) bool { return strings.HasPrefix(tag, "!") && !strings.HasPrefix(tag, "!!") }

func resource(t *testing.T, document map[string]any, name string) (kind string, properties map[string]any) {
	t.Helper()
	r, ok := document["Resources"].(map[string]any)[name].(map[string]any)
	if !ok {
		t.Fatalf("there is no resource %s", name)
	}
	return r["Type"].(string), r["Properties"].(map[string]any)
}

// sameName is what CloudFormation calls the SDK's field.
func sameName(field string) string { return field }

// Every property of the task definition and the service is a field of the
// SDK's input, with a value of its type and one of its constants.
func TestTemplateHasTheAPIsFields(t *testing.T) {
	document := template(t)
	for name, c := range map[string]struct {
		kind  string
		input reflect.Type
	}{
		"TaskDefinition": {"AWS::ECS::TaskDefinition", reflect.TypeFor[ecs.RegisterTaskDefinitionInput]()},
		"Service":        {"AWS::ECS::Service", reflect.TypeFor[ecs.CreateServiceInput]()},
	} {
		kind, properties := resource(t, document, name)
		if kind != c.kind {
			t.Errorf("%s is of type %s", name, kind)
		}
		for _, f := range conform(name, properties, c.input, sameName) {
			t.Error(f)
		}
	}
}

// The template's container has what solojob needs of one.
func TestTemplateIsFitForSolojob(t *testing.T) {
	document := template(t)
	_, properties := resource(t, document, "TaskDefinition")
	if properties["Family"] == nil {
		t.Error("without a fixed family each deploy has revision 1")
	}
	// As it comes out with a value for every parameter.
	text, err := json.Marshal(withValues(properties["ContainerDefinitions"].([]any)[0]))
	if err != nil {
		t.Fatal(err)
	}
	var container types.ContainerDefinition
	if err := json.Unmarshal(text, &container); err != nil {
		t.Fatal(err)
	}
	checkContainer(t, container)
}

// withValues puts a text where CloudFormation would put a value.
func withValues(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if list, ok := v["Fn::If"].([]any); ok {
			return withValues(list[1])
		}
		if v["Ref"] == "Command" {
			return []any{"job"}
		}
		if computed(v) {
			return "value"
		}
		out := map[string]any{}
		for name, element := range v {
			out[name] = withValues(element)
		}
		return out
	case []any:
		out := []any{}
		for _, element := range v {
			out = append(out, withValues(element))
		}
		return out
	}
	return value
}

// inText are the names in a text of Fn::Sub.
var inText = regexp.MustCompile(`\$\{([^}]+)\}`)

// references lists the names that a value refers to.
func references(value any, found map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		if name, ok := v["Ref"].(string); ok {
			found[name] = true
		}
		if parts, ok := v["Fn::GetAtt"].([]any); ok {
			found[parts[0].(string)] = true
		}
		if text, ok := v["Fn::Sub"].(string); ok {
			for _, m := range inText.FindAllStringSubmatch(text, -1) {
				found[m[1]] = true
			}
		}
		if list, ok := v["Fn::If"].([]any); ok {
			found["condition "+list[0].(string)] = true
		}
		if name, ok := v["Condition"].(string); ok {
			found["condition "+name] = true
		}
		if name, ok := v["DependsOn"].(string); ok {
			found[name] = true
		}
		for _, element := range v {
			references(element, found)
		}
	case []any:
		for _, element := range v {
			references(element, found)
		}
	}
}

// Every name that is used is declared, and every parameter and condition is used.
func TestTemplateRefersToWhatIsThere(t *testing.T) {
	document := template(t)
	used := map[string]bool{}
	references(document, used)
	declared := map[string]bool{}
	for name := range document["Parameters"].(map[string]any) {
		declared[name] = true
		if !used[name] {
			t.Errorf("the parameter %s is not used", name)
		}
	}
	for name := range document["Conditions"].(map[string]any) {
		declared["condition "+name] = true
		if !used["condition "+name] {
			t.Errorf("the condition %s is not used", name)
		}
	}
	for name := range document["Resources"].(map[string]any) {
		declared[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !declared[name] && !strings.HasPrefix(name, "AWS::") {
			t.Errorf("%s is not declared", name)
		}
	}
}

// The table has the keys of a lease table and outlives the stack: without it
// every FENCE would start anew.
func TestTableIsRetained(t *testing.T) {
	document := template(t)
	table := document["Resources"].(map[string]any)["Table"].(map[string]any)
	if table["DeletionPolicy"] != "Retain" || table["UpdateReplacePolicy"] != "Retain" {
		t.Errorf("the table is not retained: %v", table)
	}
	kind, properties := resource(t, document, "Table")
	want := map[string]any{
		"TableName": map[string]any{"Ref": "TableName"}, "BillingMode": "PAY_PER_REQUEST", "DeletionProtectionEnabled": true,
		"AttributeDefinitions": []any{
			map[string]any{"AttributeName": "pk", "AttributeType": "S"}, map[string]any{"AttributeName": "sk", "AttributeType": "S"},
		},
		"KeySchema": []any{
			map[string]any{"AttributeName": "pk", "KeyType": "HASH"}, map[string]any{"AttributeName": "sk", "KeyType": "RANGE"},
		},
	}
	if kind != "AWS::DynamoDB::Table" || !reflect.DeepEqual(properties, want) {
		t.Errorf("got %v %v", kind, properties)
	}
}

// The task role may do what an agent does, on its own lease, and nothing else;
// the policy by hand is the same.
func TestLeastPolicyIsOneAndTheSame(t *testing.T) {
	text, err := os.ReadFile("iam-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	byHand := strings.NewReplacer("REGION", "${AWS::Region}", "ACCOUNT", "${AWS::AccountId}", "table/solojob", "table/${TableName}", "arn:aws:", "arn:${AWS::Partition}:").Replace(string(text))
	var policy map[string]any
	if err := json.Unmarshal([]byte(byHand), &policy); err != nil {
		t.Fatal(err)
	}
	_, role := resource(t, template(t), "TaskRole")
	inline := role["Policies"].([]any)[0].(map[string]any)["PolicyDocument"]
	statement := policy["Statement"].([]any)[0].(map[string]any)
	statement["Resource"] = map[string]any{"Fn::Sub": statement["Resource"]}
	statement["Condition"] = map[string]any{"ForAllValues:StringEquals": map[string]any{"dynamodb:LeadingKeys": []any{map[string]any{"Ref": "Lease"}}}}
	if !reflect.DeepEqual(inline, policy) {
		t.Errorf("the template has\n%v\nby hand it is\n%v", inline, policy)
	}
	if got := fmt.Sprint(statement["Action"]); got != "[dynamodb:GetItem dynamodb:UpdateItem]" {
		t.Errorf("it allows %s", got)
	}
}

// The alarms fire on what is absent: no data breaches. Each watches the metric
// that a filter makes out of the log.
func TestAlarmsFireOnAbsence(t *testing.T) {
	document := template(t)
	for alarm, filter := range map[string]string{"SuccessAlarm": "SuccessFilter", "LeaderAlarm": "LeaderFilter"} {
		_, a := resource(t, document, alarm)
		_, f := resource(t, document, filter)
		metric := f["MetricTransformations"].([]any)[0].(map[string]any)
		if a["Namespace"] != metric["MetricNamespace"] || !reflect.DeepEqual(a["MetricName"], metric["MetricName"]) {
			t.Errorf("%s watches %v of %v, and %s makes %v", alarm, a["MetricName"], a["Namespace"], filter, metric)
		}
		if a["TreatMissingData"] != "breaching" || a["ComparisonOperator"] != "LessThanThreshold" || a["Threshold"] != 1 || a["Statistic"] != "Sum" {
			t.Errorf("%s does not fire on absence: %v", alarm, a)
		}
	}
	for filter, want := range map[string]string{
		"SuccessFilter": `{ $.msg = "job exited" && $.exit_code = 0 && $.lease = "${Lease}" }`,
		"LeaderFilter":  `{ $.msg = "lease renewed" && $.lease = "${Lease}" }`,
	} {
		_, f := resource(t, document, filter)
		if got := f["FilterPattern"].(map[string]any)["Fn::Sub"]; got != want {
			t.Errorf("%s has the pattern %v, want %s", filter, got, want)
		}
	}
}

// What the API would not accept is found: another case, an unknown field, a
// constant that does not exist, a number for a text.
func TestFaultsAreFound(t *testing.T) {
	for place, document := range map[string]any{
		"x: RegisterTaskDefinitionInput has no field":         map[string]any{"Family": "a"},
		"x.networkMode: \"nat\" is none of":                   map[string]any{"networkMode": "nat"},
		"x.cpu: has float64":                                  map[string]any{"cpu": 256.0},
		"x.containerDefinitions[0].essential: has string":     map[string]any{"containerDefinitions": []any{map[string]any{"essential": "true"}}},
		"x.containerDefinitions[0].stopTimeout: has float64 ": map[string]any{"containerDefinitions": []any{map[string]any{"stopTimeout": 0.5}}},
		"x.containerDefinitions[0].linuxParameters: Linux":    map[string]any{"containerDefinitions": []any{map[string]any{"linuxParameters": map[string]any{"initProcess": true}}}},
	} {
		faults := conform("x", document, reflect.TypeFor[ecs.RegisterTaskDefinitionInput](), apiName)
		if len(faults) != 1 || !strings.HasPrefix(faults[0].String(), place) {
			t.Errorf("got %v, want %s", faults, place)
		}
	}
}
