package fleet

import (
	"strings"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// A word of a script is a decode engine and how it has loaded KV: "a-" has failed, "a+" has loaded it, "a?" does not tell; "5m" passes the
// time. want are the decode engines from which prefill is apart then.
func TestLoads_PairsAndAll(t *testing.T) {
	for script, want := range map[string]string{
		"a- a-":                   "",
		"a- a- a-":                "a",
		"a- a- a+ a- a-":          "",
		"a- a- b+ a-":             "a",
		"a- b- a-":                "a b c", // nobody has loaded it, and the fault is prefill's
		"a- b- c-":                "a b c",
		"a- a- b- b-":             "",
		"a- a- b- b- a-":          "a b c",
		"a- b- c+ a-":             "", // others can
		"a- a? a- a-":             "a",
		"a- a- a- 1m":             "",
		"a- a- a- 1m a-":          "a",
		"a- a- a- 1m a- 1m":       "a",
		"a- a- a- 1m a- 2m a+":    "",
		"a- b- a- 1m":             "",
		"a- b- a- 1m b- 1m":       "a b c",
		"a- b- a- 1m a- 1m":       "a b c", // the pair itself has failed for the third time, too
		"a- b- a- 1m c+":          "",
		"a- b- a- 1m c? b- 1m":    "a b c",
		"a- b- a- 1m c- 2m c+ a-": "a", // three of the pair's own in a row
		"a- a- a- b- b- b- 1m a+": "",
		"a- a- a- a- 1m":          "", // a failure that comes late is that of a turn from before
		"a- b- a- c- b- 1m a+ b-": "b",
	} {
		t.Run(script, func(t *testing.T) {
			r := newRig(t)
			p, _ := r.incarnations()
			decodes := map[string]*Incarnation{}
			for _, name := range []string{"a", "b", "c"} {
				decodes[name] = tells(r.named(upstream.RoleDecode, name)[0], "1")
			}
			for word := range strings.FieldsSeq(script) {
				if pause, err := time.ParseDuration(word); err == nil {
					r.pass(pause)
					continue
				}
				d := decodes[word[:1]]
				p.BeginLoad(d)
				switch word[1:] {
				case "-":
					p.EndLoad(d, pairs.Failed)
				case "+":
					p.EndLoad(d, pairs.Answered)
				case "?":
					p.EndLoad(d, pairs.Inconclusive)
				}
			}
			var got []string
			for _, name := range []string{"a", "b", "c"} {
				if p.ApartFrom(decodes[name]) {
					got = append(got, name)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("apart from %v, want %q", got, want)
			}
		})
	}
}
