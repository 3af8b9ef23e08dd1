package fleet

import (
	"errors"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/routing"
)

// Two prefill engines that take a millisecond for a token.
const paced = "add p0 p1 d0 d1; tell 1; pass 1s; p0 learns 1000 1s; p1 learns 1000 1s;"

// What policies are told of the candidates (policyWasTold).
func TestPick_TellsThePolicy(t *testing.T) {
	const two = "add p0 p1 d0 d1; tell 1;"
	scripts{
		"of attempts": two + "d begins d0; d sees d0+1 d1",
		"of tickets of live incarnations": two + "turn holds=d0.1:100,d0.1:300,d1.0:900,gone.1:900,p0.1:900; d sees d0:300 d1; p sees p0 p1; pass 5s; d sees d0:300 d1;" +
			"d1 refuses; turn holds=d1.1:5,d1.:7; d sees d0; turn holds=d0.1:300; d0 tells 2; d sees d0",
		"of decode engines that are stopped with all prefill engines": two + "p0 offers d0 trial; p0 unanswered d0; d sees d0 d1; p1 offers d0 trial; p1 unanswered d0; d sees d0! d1;" +
			"p1 offers d1 trial; p1 unanswered d1; p0 offers d1 trial; p0 unanswered d1; d sees d0! d1!;" +
			"p0 refuses; d sees d0 d1;" + // what answers there next has not been tried
			"p0 tells 1; pass 1m; d sees d0 d1; p0 offers d0 trial; p0 unanswered d0; p1 offers d0 trial; p1 unanswered d0; d sees d0! d1;" +
			"pass 2m; p1 offers d0 trial; d sees d0 d1; set d0 d1; d sees d0 d1", // each had been stopped before; on trial is not stopped
		"of prefill engines that are stopped with all that hold the conversation": two + "p0 offers d0 trial; p0 unanswered d0; p sees p0 p1;" + bothHold + "p sees p0 p1;" +
			"turn holds=d0.1:1,d1.0:1,gone.1:1; p sees p0! p1; p0 offers d1 trial; p0 unanswered d1;" + bothHold + "p sees p0! p1;" +
			"d1 ill; d1 ill; p1 offers d0 trial; p1 unanswered d0; p sees p0! p1!; d1 answers; p sees p0! p1;" + // nobody could read from what is down
			"d1 refuses; p sees p0! p1!; turn holds=d1.1:1; p sees p0 p1;" + bothHold + "p0 refuses; p sees p1!",
		"of holders whose completions fail": two + "d0 fails 5; p0 offers d0 trial; p0 unanswered d0; turn holds=d0.1:1; p sees p0! p1", // blocks can be read

		"of prefill's delay": "add p0 p1 d0; tell 1; turn tokens=100; p sees p0 p1; pass 1m; p0 learns 1000 1s; p sees p0~100ms p1~100ms; p1 learns 1000 3s;" +
			"turn tokens=500; p begins p0; turn tokens=100; p sees p0+1~600ms p1~300ms; p0 queues 500; p0 runs 1; p0 ends; p sees p0~100ms p1~300ms; p0 tells 1;" +
			"p0 has 2 running 0 waiting 0 short 0 used 2 others; p sees p0~2.1s p1~300ms; turn; p sees p0~2.001s p1~3ms; turn tokens=100; d sees d0", // no tokens are one
		// An engine that is taken for a slow one gets no legs that could show the contrary. After a while it is tried again.
		"of a speed that is forgotten": "add p0 p1; tell 1; p0 learns 10 1m; p1 learns 1000 1s; turn tokens=100; p sees p0~10m0s p1~100ms; pass 1m; p sees p0 p1; p1 learns 1000 1s;" +
			"p sees p0~100ms p1~100ms; p0 learns 1000 2s; p sees p0~200ms p1~100ms",
		"choosing begins nothing": two + "turn tokens=500 chain=1x3; p chooses p0; p chooses p0; p0 runs 0; p0 queues 0; p weighs p0 p1; d chooses d1 but d0; d chooses none but d0 d1;" +
			"limit 1; d begins d0; d chooses busy but d1",
		// What a pick has found holds for that pick, also when the instances have changed since.
		"of no place from before": "add d0 d1 d2; tell 1; turn holds=d2.1:16; d sees d0 d1 d2:16; add p0; d2 sees d2:16; d0 sees d0",
	}.run(t)
	r := newRig(t)
	r.play("add d0; turn key=k; d picks d0")
	if r.seen.key != "k" {
		t.Errorf("the policy was told key %q", r.seen.key)
	}
}

const bothHold = "turn holds=d0.1:1,d1.1:1;"

// Models are told apart by the sets that picks have looked at.
func TestPick_ChangeOfInstancesMixesUpNoModels(t *testing.T) {
	r := newRig(t)
	one := r.named("d0")[0]
	one.served.Store(&modelSet{"a": {}})
	for n := range 10 {
		for model, want := range map[string]error{"a": nil, "b": upstream.ErrNoModel} {
			if _, err := r.Choose(upstream.RoleDecode, Hint{Model: model}, nil); !errors.Is(err, want) {
				t.Fatalf("pick %d of %s: %v, want %v", n, model, err, want)
			}
			r.named("p" + model + string(rune('k'+n)))
		}
	}
}

// The function that excludes engines may ask the fleet.
func TestPick_ExcludesWithoutALock(t *testing.T) {
	r := newRig(t)
	r.play("add p0 p1; tell 1; p0 errs")
	e, err := r.Choose(upstream.RolePrefill, Hint{}, func(e *Engine) bool {
		return r.Engine(upstream.RolePrefill, e.Name).Quarantined() || r.Up(upstream.RolePrefill) == 0
	})
	if err != nil || e.Name != "p1" {
		t.Fatalf("picked %v, %v, want p1", e, err)
	}
}

func TestPick_TellsWhatWasHandedBack(t *testing.T) {
	const noted = "turn tokens=1000 notes=p1.1:700;"
	rows := scripts{
		"of this start":                noted + "p sees p0~1s p1:700/3~300ms",
		"less than a piece":            "turn tokens=1000 notes=p1.1:16; p sees p0~1s p1:16/1~984ms",
		"all of the prompt, and more":  "turn tokens=1000 notes=p1.1:5000; p sees p0~1s p1:5000/20~1ms",
		"of both":                      "turn tokens=1000 notes=p1.1:700,p0.1:300; p sees p0:300/2~700ms p1:700/3~300ms",
		"the longest of a start":       "turn tokens=1000 notes=p1.1:700,p1.1:200; p sees p0~1s p1:700/3~300ms",
		"the longest of a start, last": "turn tokens=1000 notes=p1.1:256,p1.1:700; p sees p0~1s p1:700/3~300ms",
		"behind what decode holds":     noted[:len(noted)-1] + " holds=d0.1:700; p sees p0~1s p1:700/3~1s",
		"beyond what decode holds":     noted[:len(noted)-1] + " holds=d0.1:300; p sees p0~1s p1:700/3~600ms",
		"of others":                    "turn tokens=1000 notes=p1.2:700,p1.:700,.1:700,gone.1:700,d0.1:700; p sees p0~1s p1~1s",
		"of nothing":                   "turn tokens=1000 notes=p1.1:0,p0.1:-5; p sees p0~1s p1~1s",
		"of a prompt without tokens":   "turn notes=p1.1:700; p sees p0~1ms p1:700/3~1ms",

		"until it is restarted":                         noted + "p1 sees p1:700/3~300ms; p1 tells 2; p1 sees p1~1s",
		"until it refuses":                              noted + "p1 refuses; pass 2s; p1 sees p1~1s",
		"until it is quarantined":                       noted + "p1 errs; p1 begins p1; p saw p1~1s",
		"until it is away":                              noted + "set p0 d0 d1; p sees p0~1s",
		"to prefill, not decode":                        "add d3; d3 tells 1; turn tokens=1000 holds=d3.1:500 notes=d3.1:700; d3 sees d3:500; d3 begins d3; d3 queues 1000",
		"to one that is excluded, which marks no other": "p sees p0~1ms p1~1ms; turn tokens=1000 notes=p0.1:700; p1 sees p1~1s",

		// What was computed as part of prompts and what was handed back overlap: the more of the two counts. A piece has 100 tokens here.
		"more than was computed":  "p1 computed 1x4; turn tokens=1000 chain=1x10 notes=p1.1:900; p sees p0~1s p1:900/9~100ms",
		"less than was computed":  "p1 computed 1x9; turn tokens=1000 chain=1x10 notes=p1.1:400; p sees p0~1s p1:400/9~100ms",
		"as much as was computed": "p1 computed 1x4; turn tokens=1000 chain=1x10 notes=p1.1:400; p sees p0~1s p1:400/4~600ms",
		"a part of a piece":       "turn tokens=1000 chain=1x10 notes=p1.1:310; p sees p0~1s p1:310/4~690ms",
		"what others wrote":       "p1 computed 1x4; turn tokens=1000 chain=1x10 notes=p1.1:-5000; p sees p0~1s p1/4~600ms",

		// An engine is expected to compute what is left, also in the eyes of the picks that follow.
		"it is not queued": "turn tokens=1000 notes=p0.1:700; p begins p0; p0 queues 300; p0 ends; p0 queues 0; turn tokens=1000 notes=p0.2:700; p begins p0; p0 queues 1000; p0 ends;" +
			"turn tokens=1000 notes=p1.1:700; p begins p0; p0 queues 1000; p0 ends; turn tokens=1000 notes=p0.1:5000; p begins p0; p0 queues 1",

		// An engine that tells what it holds is believed, where the prompt is known.
		"until it is evicted": strings.ReplaceAll("p0 starts; p1 starts; turn tokens=3072 chain=1x8+2x4 notes=p1.1:2312; LOOK:2312/10~760ms;"+ // the prompt is not known
			"p1 knows 1x8; LOOK~3.072s; p0 ages; LOOK~3.072s; p1 stores 1x8 8; p0 stores 1x8 8; LOOK:2312/10~760ms;"+ // nothing is held; its prompt is
			"turn tokens=3072 chain=1x8+3x4 notes=p1.1:1024; p1 knows 1x8+3x4; LOOK:1024/8~1.024s;"+ // more than was handed back is known, and not held
			"turn tokens=3072 chain=1x8+2x4 notes=p1.1:2312; p1 evicts 1x8 127 128; LOOK/7~1.28s; p1 loses; LOOK:2312/10~760ms", "LOOK", "p1 weighs p1"),
	}
	for name := range rows {
		rows[name] = paced + rows[name]
	}
	rows.run(t)
}

// A note is a hint: which policies follow it, and that a favourite which is too busy gives way as it does for prefixes.
func TestPick_PoliciesFollowHandBacks(t *testing.T) {
	affinity := &routing.Affinity{Otherwise: &routing.LeastLoaded{}}
	for _, row := range []struct {
		name   string
		policy upstream.Policy
		key    string
		slow   bool   // speeds are not known
		busy   string // attempts on the noted instance, of a prompt as long each
		want   bool   // both notes are followed
	}{
		{"auto", &routing.Auto{}, "", false, "", true},
		{"auto, of a conversation", &routing.Auto{}, "k", false, "", true},
		{"auto, without speeds", &routing.Auto{}, "k", true, "", true},
		{"prefix", &routing.Prefix{}, "", false, "", true},
		{"affinity", affinity, "k", false, "", true},
		{"affinity, of no conversation", affinity, "", false, "", true}, // by the delay
		{"least loaded", &routing.LeastLoaded{}, "k", false, "", true},  // by the delay
		{"power of two", &routing.PowerOfTwo{}, "k", false, "", true},   // by the delay
		{"least loaded, without speeds", &routing.LeastLoaded{}, "k", true, "", false},
		{"round robin", &routing.RoundRobin{}, "k", false, "", false},
		{"auto, busy", &routing.Auto{}, "", false, twoTurns, false},
		{"prefix, busy", &routing.Prefix{}, "", false, twoTurns, false},
		{"auto, busy, without speeds", &routing.Auto{}, "", true, twoTurns, false},
		{"affinity, busy", affinity, "k", false, twoTurns, true},
	} {
		followed := true
		for _, name := range []string{"p0", "p1"} {
			r := newRig(t)
			script := paced
			if row.slow {
				script = "add p0 p1; tell 1;"
			}
			r.play(script + strings.ReplaceAll(row.busy, "NAME", name) + "pass 0s")
			r.picking.prefill = row.policy
			for range 2 { // also where equals are taken in turn
				e, done, err := r.Pick(upstream.RolePrefill, Hint{Key: row.key, Tokens: 1000, PrefixHints: []Holding{{name, "1", 900}}}, nil)
				must(t, err)
				done()
				followed = followed && e.Name == name
			}
		}
		if followed != row.want {
			t.Errorf("%s: the note is followed: %t, want %t", row.name, followed, row.want)
		}
	}
}

const twoTurns = "turn tokens=1000; NAME begins NAME; NAME begins NAME;"

func TestTakesHandBack(t *testing.T) {
	rows := scripts{
		"idle":                               "p0 is free",
		"nearly too many of ours":            "p0 works 7; p0 is free; p0 works 1; p0 not free",
		"too many of others":                 "p0 has 8 running 0 waiting 0 short 0 used 8 others; p0 not free",
		"too many of both":                   "p0 works 4; p0 has 8 running 0 waiting 0 short 0 used 4 others; p0 not free",
		"too many hand-backs":                "p0 works 4; p0 hands-back 4; p0 not free",
		"hand-backs that have ended, twice":  "p0 handed-back 9; p0 is free; p0 hands-back 8; p0 not free",
		"a request of others waits for room": "p0 has 1 running 1 waiting 1 short 0 used 2 others; p0 not free",
		"one of ours waited for room":        "p0 has 1 running 1 waiting 1 short 0 used 0 others; p0 is free; p0 works 2; p0 not free", // at first none is left
		"one waits for KV that it reads":     "p0 has 1 running 1 waiting 0 short 0 used 2 others; p0 is free",
		"room in the cache":                  "p0 has 0 running 0 waiting 0 short 0.89 used; p0 is free; p0 has 0 running 0 waiting 0 short 0.9 used; p0 not free",
		"not read for long":                  "pass 14999999999ns; p0 is free; pass 1ns; p0 not free",
		"start not known":                    "p0 forgets; p0 not free; p0 has; p0 not free",
		"quarantined":                        "p0 errs; p0 not free",
		"drained":                            "p0 drains; p0 not free",
		"gone":                               "set; p0 not free",
		"refuses connections":                "p0 refuses; p0 not free",
		"unhealthy":                          "p0 ill; p0 is free; p0 ill; p0 not free",
		"circuit":                            "p0 fails 5; p0 not free; pass 1s; p0 not free; p0 serves; p0 is free",
		"ejected":                            "add p2; p0 slows; p0 not free",
	}
	for name := range rows {
		rows[name] = "add p0 p1; tell 1; p0 has;" + rows[name]
	}
	rows.run(t)
}
