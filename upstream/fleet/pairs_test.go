package fleet

import (
	"strings"
	"testing"

	"carryover/upstream/fleet/pairs"
)

// What two incarnations have shown together is theirs alone.
func TestPairs(t *testing.T) {
	scripts{
		"each has its own trial": "add p0 p1 d0 d1; tell 1; p0 offers d0 trial; p0 offers d0 busy; p0 offers d1 trial; p0 answered d0; p0 offers d0 proven;" +
			"p1 answered d0; p1 offers d0 trial", // a pair on which no ticket was begun
		"of two incarnations": "add p0 d0; tell 1; p0 offers d0 trial; p0 answered d0; d0 refuses; d0 tells 1; p0 offers d0 proven; d0 tells 2; p0 offers d0 trial; p0 answered d0;" +
			// An attempt may hold on to an incarnation that is over. It offers no ticket: each would be a trial of its own.
			"p0 offers d0.1 busy; p0 offers d0.1 busy; p0 offers d0 proven; p0 pairs 1; p0 tells 2; p0 offers d0 trial; p0.1 offers d0 busy; p0.1 offers d0 busy; p0.1 pairs 0",
		"as long as blocks may be pinned": "add p0 d0; tell 1; p0 offers d0 trial; p0 answered d0; set p0; set p0 d0; p0 offers d0 proven; set p0; pass 8m; set p0; p0 pairs 0; p0 offers d0 busy;" +
			"p0 pairs 0; set p0 d0; d0 returns anew; d0 tells 1; p0 offers d0 trial",
		"the status, without a beginning": "add p0 d0 d1; tell 1; p0 status d0 trial; p0 pairs 0; p0 offers d0 trial; p0 status d0 busy; p0 answered d0; p0 status d0 proven; p0 status d0 proven;" +
			"p0 offers d1 trial; p0 unanswered d1; p0 status d1 none; p1 status d0 none",

		"other settings keep the engine":       "add p0 d0; tell 1; p0 offers d0 trial; p0 answered d0; p0 reconfigured; d0 reconfigured; d0 returns same; d0.1 is shown; p0.1 is shown; p0 offers d0 proven",
		"other settings of prefill end a stop": stopped + "p0 reconfigured; p0 offers d0 trial; p0 releases d0",
		"other settings of decode end a stop":  stopped + "d0 reconfigured; p0 offers d0 trial; p0 releases d0",

		"a departed engine, while blocks may be pinned": "add p0 d0; tell 1; d0 reconfigured; set p0; d picks none; d0 not reachable; d0.1 is leaving found; d0.1 not over; holders 1; d0.2 not found;" +
			"pass 59m59s; set p0; d0.1 not over; pass 1s; set p0; d0.1 is over; d0.1 not found; holders 0",
		"for what its attempts leave": "add d0; tell 1; d0 reconfigured; d begins d0; set; pass 5h; set; d0 ends; d0.1 not over; pass 59m; set; d0.1 not over; pass 1m; set; d0.1 is over",
	}.run(t)
	r := newRig(t)
	for i := range 2 * maxDeparted {
		r.Set(nil)
		tells(r.named("d" + string(rune('a'+i)))[0], "1")
		r.instances = nil
	}
	if n := len(r.Holders.departed); n != maxDeparted {
		t.Errorf("%d engines are kept, want %d", n, maxDeparted)
	}
}

const stopped = "add p0 d0; tell 1; p0 exchanged d0; p0 offers d0 trial; p0 unanswered d0; p0 rejected d0; p0 offers d0 none; p0 releases d0 not;"

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
			r.play("add p0 da db dc; tell 1")
			p := r.told["p0"]
			for word := range strings.FieldsSeq(script) {
				d := r.told["d"+word[:1]]
				if d == nil {
					r.play("pass " + word)
					continue
				}
				p.BeginLoad(d)
				p.EndLoad(d, map[string]pairs.Outcome{"-": pairs.Failed, "+": pairs.Answered, "?": pairs.Inconclusive}[word[1:]])
			}
			got := ""
			for _, name := range []string{"a", "b", "c"} {
				if p.ApartFrom(r.told["d"+name]) {
					got += " " + name
				}
			}
			if strings.TrimSpace(got) != want {
				t.Errorf("apart from%s, want %q", got, want)
			}
		})
	}
}

// A decode engine that can read no prefill engine is picked behind those that can, and like them where none can.
func TestLoads_PicksPreferDecodeThatReads(t *testing.T) {
	r := newRig(t)
	const apart = "d chooses d0; p0 is apart; p1 is apart; d0 is apart; d1 is apart;"
	r.play("add p0 p1 d0 d1; tell 1; d chooses d0; p0 is up; p1 is up; d0 is up; d1 is up;" +
		"p0 unloaded d0 d0 d0; d chooses d0; p0 is apart; p1 is up; d0 is up; d1 is up;" +
		"p1 unloaded d0 d0 d0; d chooses d1; p0 is apart; p1 is apart; d0 is apart; d1 is up;" +
		"p0 unloaded d1 d1 d1; p1 unloaded d1 d1 d1;" + apart + "p1 loaded d1;" + apart + "pass 1m") // the load is of a turn from before
	if ok, trial := r.told["p1"].BeginLoad(r.told["d1"]); !ok || !trial {
		t.Errorf("it is tried again: %t, as a trial: %t", ok, trial)
	}
	r.play("p1 loaded d1; d chooses d0; p0 is up; p1 is up; d0 is up; d1 is up")
}
