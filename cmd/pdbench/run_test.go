package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testSite is one whose program is the test binary.
func testSite(t *testing.T) site {
	t.Helper()
	return site{self: []string{os.Args[0]}, variables: []string{programVariable + "=1"}, logs: t.TempDir()}
}

// A run of what needs nothing but Go: the ways are short, and what is measured is not looked at, but that nothing goes wrong.
func TestMeasure_DirectRelayAndCarryover(t *testing.T) {
	s := testSite(t)
	names := []string{nameDirect, nameRelay}
	if !testing.Short() {
		s.carryover = filepath.Join(t.TempDir(), "carryover")
		if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.carryover, "../carryover").CombinedOutput(); err != nil {
			t.Fatalf("build: %v: %s", err, text)
		}
		names = append(names, nameCarryover)
	}
	var todo []group
	for _, g := range brief(groups()) {
		for i := range g.workloads {
			g.workloads[i].Contenders = names
		}
		todo = append(todo, g)
	}
	var said strings.Builder
	b := &bench{site: &s, proc: openProc(), say: &said, profile: t.TempDir()}
	results, err := b.measureAll(t.Context(), only(todo, []string{w1, w1Whole, w2s, w2sOlder, w5Small, tChunks}, nil))
	if err != nil || len(results) != 6*len(names) {
		t.Fatalf("%d results, %v\n%s", len(results), err, said.String())
	}
	for _, r := range results {
		if len(r.Wrong) > 0 || r.NotMeasured != "" || len(r.Rounds) != 1 {
			t.Errorf("%s at %s: %+v", r.Contender, r.Workload.Name, r)
		}
		if r.Contender != nameDirect && r.Median[peakMB] <= 0 {
			t.Errorf("%s at %s: no memory was read: %v", r.Contender, r.Workload.Name, r.Median)
		}
	}
	if testing.Short() {
		return
	}
	for _, name := range []string{"w1", "w2s"} {
		if profile, err := os.ReadFile(filepath.Join(b.profile, name+".pprof")); err != nil || !bytes.HasPrefix(profile, []byte("\x1f\x8b")) {
			t.Errorf("profile %s: %d bytes, %v", name, len(profile), err)
		}
	}
}

func TestEnter_SaysWhatIsNotMeasured(t *testing.T) {
	s := testSite(t)
	b := &bench{site: &s, proc: openProc(), say: io.Discard}
	enter := func(name string) (*cell, error) {
		return b.enter(t.Context(), workload{Name: "x"}, name, &engines{Prefill: "http://127.0.0.1:1", Decode: "http://127.0.0.1:1"})
	}
	c, err := enter(namePython)
	if err != nil || !strings.Contains(c.result.NotMeasured, "--python-example") {
		t.Errorf("without its file: %+v, %v", c, err)
	}
	s.pythonExample, s.python = "example.py", filepath.Join(t.TempDir(), "none")
	if c, err = enter(namePython); err != nil || !strings.Contains(c.result.NotMeasured, "need-bench-python.sh") {
		t.Errorf("without its environment: %+v, %v", c, err)
	}
	s.carryover = "/bin/true"
	if c, err = enter(nameCarryoverStd); err != nil || !strings.Contains(c.result.NotMeasured, "--upstream-client") {
		t.Errorf("without the flag: %+v, %v", c, err)
	}
	if err := b.measure(t.Context(), c); err != nil || len(c.result.Rounds) > 0 {
		t.Errorf("what is not measured was measured: %+v, %v", c.result, err)
	}
	c.in.stop()
	if _, err := enter("none"); err == nil {
		t.Error("there is a contender none")
	}
	if _, err := enter(nameCarryover); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a program that ends at once: %v", err)
	}
}

func TestStart_SaysWhyThereIsNoProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if _, err := start(t.Context(), command{name: "x", log: log, binary: "/does/not/exist"}); err == nil {
		t.Error("started")
	}
	var line string
	_, err := start(t.Context(), command{name: "x", log: log, binary: "/bin/sh", arguments: []string{"-c", "echo no room >&2"}, firstLine: &line})
	if err == nil || !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "no room") {
		t.Errorf("one that says nothing: %v", err)
	}
	p, err := start(t.Context(), command{name: "x", log: log, binary: "/bin/sh", arguments: []string{"-c", "exec sleep 60"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := p.ready(ctx, func(context.Context) error { return errors.New("not yet") }); err == nil || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("one that never is ready: %v", err)
	}
}

func TestRun_RefusesWhatItDoesNotKnow(t *testing.T) {
	for args, want := range map[string]string{
		"--none":            "none",
		"measure":           `unexpected "measure"`,
		"--workloads W1,W9": `no workload "W9"`,
		"--contenders W1":   `no contender "W1"`,
		"--vllm 0.31":       `no engines of vLLM "0.31"`,
		"--vllm=":           `no engines of vLLM ""`,
		"--markdown /none":  "/none",
		"relay --none":      "none",
	} {
		var out, errs strings.Builder
		if code := program(t.Context(), strings.Fields(args), &out, &errs); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: got %d, %s; want %q", args, code, errs.String(), want)
		}
	}
	var out, errs strings.Builder
	nothing := []string{"--workloads", w1Redis, "--contenders", nameNginx, "--out", t.TempDir()}
	if code := program(t.Context(), nothing, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "none of the workloads") {
		t.Errorf("nothing to measure: got %d, %s", code, errs.String())
	}
	errs.Reset()
	if code := program(t.Context(), []string{"--help"}, &out, &errs); code != exitOK || !strings.Contains(errs.String(), "python-example") {
		t.Errorf("--help: %d %s", code, errs.String())
	}
}

func TestRun_PrintsTablesOfAnEarlierRun(t *testing.T) {
	base := filepath.Join(t.TempDir(), "bench")
	if err := sample().write(base); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	if code := program(t.Context(), []string{"--markdown", base + ".json"}, &out, &errs); code != exitOK || out.String() != sample().markdown() {
		t.Errorf("got %d, %s%s", code, out.String(), errs.String())
	}
}
