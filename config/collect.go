package config

import (
	"slices"
	"strings"
	"unicode"

	"github.com/agnivade/levenshtein"
)

// collect returns the settings in environ by their names without the prefix,
// and reports the names that are wrong.
func (r *report) collect(environ []string, known []setting) map[string]string {
	set := map[string]string{}
	for _, entry := range environ {
		name, value, assigned := strings.Cut(entry, "=")
		if strings.HasPrefix(name, OutputPrefix) {
			continue
		}
		short, ours := strings.CutPrefix(name, Prefix)
		isKnown := ours && slices.ContainsFunc(known, func(s setting) bool { return s.name == short })
		switch {
		case isKnown && !assigned:
			r.add(Problem{Variable: name, Wrong: "stands in the environment without a value", Do: "Set it, or remove it"})
		case isKnown:
			if earlier, twice := set[short]; twice {
				r.add(Problem{Variable: name, Value: value,
					Wrong: "is set twice, also to " + shortened(earlier) + "; which of them counts would be a matter of luck",
					Do:    "Set it once"})
			}
			set[short] = value
		default:
			r.unknown(name, ours, known)
		}
	}
	return set
}

// nearly is the number of letters by which a name may differ from a setting's
// to be taken for a slip of it although it does not begin with our prefix
// (SOLOJOBS_LEASE, SOLJOB_SCHEDULE). The names are twelve letters and more.
const nearly = 2

// unknown reports a name that no setting has, if it is meant as one of ours.
// Its value is not shown: whatever it is, it isn't a setting, and may be a
// secret.
func (r *report) unknown(name string, ours bool, known []setting) {
	upper := strings.ToUpper(name)
	nearest, distance := "", len(name)+len(Prefix)
	for _, s := range known {
		full := Prefix + s.name
		if !ours && abs(len(name)-len(full)) > nearly {
			continue // the most common case, cheaply
		}
		// A very long name is near to none; its head decides as well as the whole.
		if d := levenshtein.ComputeDistance(upper[:min(len(upper), 2*longestShown)], full); d < distance {
			nearest, distance = full, d
		}
	}
	if !ours && distance > nearly && !strings.HasPrefix(upper, Prefix) {
		return // somebody else's
	}
	if strings.HasPrefix(upper, OutputPrefix) && name != upper {
		return // an output in other letters is no setting either way
	}
	r.add(Problem{Variable: name, Wrong: "is not a setting; the nearest that is one is " + nearest, Do: "Correct the name, or remove it"})
}

func abs(n int) int { return max(n, -n) }

// checkEach checks every value by itself and returns those that are right, in
// their normal form, under their full names.
func (r *report) checkEach(set map[string]string, known []setting) map[string]string {
	usable := map[string]string{}
	for _, s := range known {
		value, ok := set[s.name]
		if !ok || r.has(Prefix+s.name) {
			continue
		}
		p := Problem{Variable: Prefix + s.name, Value: value, Accepted: s.accepts}
		if value == "" {
			p.Wrong, p.Do = "is set but empty", "Give it a value, or don't set it at all"
			r.add(p)
			continue
		}
		if trimmed := strings.TrimFunc(value, unicode.IsSpace); trimmed != value {
			p.Wrong, p.Do = "has white space around its value", "Remove the white space"
			if trimmed == "" {
				p.Wrong, p.Do = "holds nothing but white space", "Give it a value, or don't set it at all"
			}
			r.add(p)
			continue
		}
		normal, flaw := s.check(value)
		if flaw != nil {
			p.Wrong, p.Do = flaw.wrong, flaw.do
			r.add(p)
			continue
		}
		usable[Prefix+s.name] = normal
	}
	return usable
}
