package doctor

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/demo"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

func TestDoctor_IsQuietOnAHealthyFleet(t *testing.T) {
	for _, connector := range config.Connectors() {
		t.Run(connector, func(t *testing.T) {
			if testing.Short() {
				t.Skip("drives the whole program")
			}
			engines, err := demo.StartDeployment(demo.Options{Connector: connector, Prefills: 2, Decodes: 2})
			must(t, err)
			defer engines.Close()
			engines.Settings.Timeouts.Store = testrig.PatientStore
			engines.Settings.HandBack.Mode = config.Default().HandBack.Mode // the demo shows tickets, and the doctor speaks of what is switched off
			for _, i := range append(engines.Prefill, engines.Decode...) {
				must(t, i.Switch(vllmsim.Switches{Timing: &vllmsim.Timing{}}))
			}
			told := examineBy(t, engines.Settings, options{timeout: time.Minute, strict: true})
			if wrong := told.wrong(); len(wrong) > 0 || !told.Healthy || told.Holds < 20 || told.Requests != 4*MaxProbeTurns {
				t.Errorf("healthy %t, %d checks hold, %d requests, and %+v", told.Healthy, told.Holds, told.Requests, wrong)
			}
			nothingLeft(t, engines.Prefill, engines.Decode)
		})
	}
}

// What is well is said in one line. What a deployment without agents lacks is told, and is no fault.
func TestDoctor_SaysWhetherPromptsAreRendered(t *testing.T) {
	for _, renders := range []bool{true, false} {
		w := newWard(t, func(p, _ *vllmsim.Config) { p.Render = renders })
		code, stdout, stderr := runCommand(t, append([]string{"doctor", "--strict"}, w.args...)...)
		says := []string{"ok    " + codeRenderOff, "reuse nothing", "--enable-scale-out on " + strings.TrimPrefix(w.prefill.URL(), "http://"), "--render URL"}
		if renders {
			says = []string{"1 of 1 pair tried, with 4 short requests"}
		}
		if code != command.ExitOK || stderr != "" || renders && (!strings.Contains("\n"+stdout, "\nall ") || strings.Contains(stdout, "fix:")) {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
		for _, part := range says {
			if !strings.Contains(stdout, part) {
				t.Errorf("renders %v: %q is not said in\n%s", renders, part, stdout)
			}
		}
	}
}

func TestDoctor_NoTurnsCompletesNothing(t *testing.T) {
	w := newWard(t, nil)
	w.options.noTurns = true
	if told := w.examine(t); !told.Healthy || told.Requests != 0 {
		t.Errorf("%+v", told)
	}
	for _, i := range []*vllmsim.Instance{w.prefill, w.decode} {
		for _, r := range i.Requests() {
			if r.Method != "GET" && !strings.HasSuffix(r.Path, "/render") && !strings.Contains(string(r.Body), `"x"`) {
				t.Errorf("%s %s was sent, which is no probe: %s", r.Method, r.Path, r.Body)
			}
		}
	}
}

func TestDoctor_LeavesNothingInRedis(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl")
	w := newWard(t, nil, "--redis-url", "redis://"+server.Addr())
	w.env = []string{testrig.ReplicaSecret}
	puts := func(noTurns bool) int { // of an examination, the test of the store among them
		before := server.Calls("hset")
		w.options.noTurns = noTurns
		if told := w.examine(t); len(told.wrong()) > 0 {
			t.Errorf("%+v", told.wrong())
		}
		return server.Calls("hset") - before
	}
	if without, with := puts(true), puts(false); with != without || without == 0 {
		t.Errorf("Redis got %d tickets with turns and %d without", with, without)
	}
	if keys := server.CLI("DBSIZE"); keys != "0" {
		t.Errorf("%s keys are left in Redis", keys)
	}
}

func TestDoctor_EndsInTimeAndGivesBackWhatItHas(t *testing.T) {
	w := newWard(t, func(p, _ *vllmsim.Config) { p.Timing.Overhead = 400 * time.Millisecond })
	w.options.timeout = 1500 * time.Millisecond
	began := time.Now()
	told := w.examine(t)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	told.find(t, codeNotFinished)
	nothingLeft(t, nil, []*vllmsim.Instance{w.decode})
}

func TestDoctor_ACancelledOneFails(t *testing.T) {
	w := newWard(t, nil)
	cfg, err := configtest.Load(t, strings.Join(w.args, " "))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runDoctor(ctx, cfg, w.options, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
		t.Error("a doctor that was cancelled found nothing wrong")
	}
}
