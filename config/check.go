package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

func checkLease(value string) (string, *flaw) { return value, rowFlaw(value) }

func checkSchedule(value string) (string, *flaw) { return value, rowFlaw(value) }

// rowFlaw says why a text can't stand in the lease item. What people can't see
// is refused: two deployments whose names look alike must not differ.
func rowFlaw(value string) *flaw {
	if len(value) > rowText {
		return &flaw{wrong: fmt.Sprintf("is too long (%d bytes)", len(value))}
	}
	if !utf8.ValidString(value) {
		return &flaw{wrong: "is not valid UTF-8"}
	}
	for _, c := range value {
		if !unicode.IsPrint(c) { // of all spaces, U+0020 alone is printable
			return &flaw{wrong: fmt.Sprintf("contains %U, which can't be seen", c), do: "Remove that character"}
		}
	}
	return nil
}

// The names that CreateTable accepts, and the ARN that every request accepts
// in place of a name (API reference of DynamoDB, TableName).
var (
	tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
	tableARN  = regexp.MustCompile(`^arn:[a-z0-9-]+:dynamodb:[a-z0-9-]+:[0-9]{12}:table/[a-zA-Z0-9_.-]{3,255}$`)
)

func checkTable(value string) (string, *flaw) {
	switch {
	case tableName.MatchString(value), tableARN.MatchString(value):
		return value, nil
	case strings.HasPrefix(value, "arn:"):
		return "", &flaw{wrong: "is not the ARN of a table", do: "It looks like arn:aws:dynamodb:eu-central-1:123456789012:table/solojob"}
	case len(value) < 3 || len(value) > 255:
		return "", &flaw{wrong: fmt.Sprintf("is no name of a table (%d bytes long)", len(value))}
	}
	return "", &flaw{wrong: "is no name of a table"}
}

func checkTimezone(value string) (string, *flaw) {
	if value == "Local" { // the one name that Go takes from the machine
		return "", &flaw{wrong: "means another zone on every machine", do: "Name the zone"}
	}
	if _, err := time.LoadLocation(value); err != nil {
		return "", &flaw{wrong: "is not a known time zone", do: "Check the spelling, upper and lower case included"}
	}
	return value, nil
}

func checkChoice(choices []string) func(string) (string, *flaw) {
	return func(value string) (string, *flaw) {
		if lower := strings.ToLower(value); slices.Contains(choices, lower) {
			return lower, nil
		}
		return "", &flaw{wrong: "is not one of the choices"}
	}
}

// checkSignal accepts a signal's name with SIG in front and without, as kill(1)
// does.
func checkSignal(names []string) func(string) (string, *flaw) {
	return func(value string) (string, *flaw) {
		if name := strings.TrimPrefix(strings.ToUpper(value), "SIG"); slices.Contains(names, name) {
			return name, nil
		}
		return "", &flaw{wrong: "is not one of these signals"}
	}
}

func checkInteger(least, most int64) func(string) (string, *flaw) {
	return func(value string) (string, *flaw) {
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return "", &flaw{wrong: "is out of range"}
		case err != nil:
			return "", &flaw{wrong: "is not a whole number"}
		case n < least:
			return "", &flaw{wrong: "is less than " + decimal(least)}
		case n > most:
			return "", &flaw{wrong: "is more than " + decimal(most)}
		}
		return decimal(n), nil
	}
}

func checkDuration(least, most time.Duration, zero bool) func(string) (string, *flaw) {
	return func(value string) (string, *flaw) {
		d, err := time.ParseDuration(value)
		switch {
		case err != nil:
			return "", durationFlaw(value)
		case d < 0:
			return "", &flaw{wrong: "is negative"}
		case d == 0 && zero:
			return "0s", nil
		case d == 0:
			return "", &flaw{wrong: "is zero"}
		case d < least:
			return "", &flaw{wrong: "is shorter than " + short(least)}
		case d > most:
			return "", &flaw{wrong: "is longer than " + short(most)}
		}
		return d.String(), nil
	}
}

// durationFlaw finds out what was meant by a text that is no duration.
func durationFlaw(value string) *flaw {
	if n, err := strconv.ParseFloat(value, 64); err == nil {
		if n > 0 && n < 1e9 {
			return &flaw{wrong: "has no unit", do: "For seconds write " + value + "s"}
		}
		return &flaw{wrong: "has no unit"}
	}
	compact := strings.ToLower(strings.Join(strings.Fields(value), ""))
	if days, ok := strings.CutSuffix(compact, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return &flaw{wrong: "has a unit that is not known", do: fmt.Sprintf("For days write %dh", 24*n)}
		}
	}
	for _, words := range [][2]string{{"seconds", "s"}, {"second", "s"}, {"sec", "s"}, {"minutes", "m"}, {"minute", "m"}, {"min", "m"}, {"hours", "h"}, {"hour", "h"}} {
		compact = strings.Replace(compact, words[0], words[1], 1)
	}
	if d, err := time.ParseDuration(compact); err == nil && d > 0 {
		return &flaw{wrong: "is not a duration", do: "Did you mean " + compact + "?"}
	}
	if strings.Trim(compact, "+-0123456789.hmnuµs") == "" && strings.ContainsAny(compact, "0123456789") && strings.ContainsAny(compact, "hms") {
		return &flaw{wrong: "is not a duration, or one beyond all bounds"}
	}
	return &flaw{wrong: "is not a duration"}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// short writes a duration without the zeros that [time.Duration.String] pads
// it with: 1h instead of 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
