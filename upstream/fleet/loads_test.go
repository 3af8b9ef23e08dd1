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

// A decode engine that can read no prefill engine is picked behind those that can, and like them where none can.
func TestLoads_PicksPreferDecodeThatReads(t *testing.T) {
	r := newRig(t)
	prefills := []*Incarnation{tells(r.named(upstream.RolePrefill, "p")[0], "1"), tells(r.named(upstream.RolePrefill, "q")[0], "1")}
	a, b := tells(r.named(upstream.RoleDecode, "a")[0], "1"), tells(r.named(upstream.RoleDecode, "b")[0], "1")
	fails := func(p, d *Incarnation) {
		for range pairs.Strikes {
			p.EndLoad(d, pairs.Failed)
		}
	}
	picks := func(want string, states ...string) {
		t.Helper()
		e, err := r.Choose(upstream.RoleDecode, Hint{}, nil)
		if err != nil || e.Name != want {
			t.Errorf("picked %v, %v, want %s", e, err, want)
		}
		for i, s := range []*Incarnation{prefills[0], prefills[1], a, b} {
			if got := s.Engine().Live(); got.State != states[i] || (got.Why == "") != (got.State == "up") {
				t.Errorf("%s is %s, %q, want %s", s.Engine().Name, got.State, got.Why, states[i])
			}
		}
	}
	picks("a", "up", "up", "up", "up")
	fails(prefills[0], a)
	picks("a", "apart", "up", "up", "up")
	fails(prefills[1], a)
	picks("b", "apart", "apart", "apart", "up")
	fails(prefills[0], b)
	fails(prefills[1], b)
	picks("a", "apart", "apart", "apart", "apart")
	prefills[1].EndLoad(b, pairs.Answered) // a turn from before
	picks("a", "apart", "apart", "apart", "apart")
	r.pass(pairs.RetrialAfter)
	if ok, trial := prefills[1].BeginLoad(b); !ok || !trial {
		t.Errorf("it is tried again: %t, as a trial: %t", ok, trial)
	}
	prefills[1].EndLoad(b, pairs.Answered)
	picks("a", "up", "up", "up", "up")
}
