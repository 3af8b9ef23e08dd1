package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
)

// Names of contenders.
const (
	nameDirect       = "direct"
	nameCarryover    = "carryover"
	nameCarryoverStd = "carryover-std"
	nameNginx        = "nginx"
	nameRelay        = "relay"
	namePython       = "python"
)

// contender is one way from clients to engines.
type contender struct {
	name string
	what string // in a sentence
	// start has it serve one workload on the engines. errNotMeasured says why it can't here.
	start func(context.Context, *site, workload, *engines) (*entrant, error)
	// most is how many streams it has open at once, if it can't have as many as it is asked for; 0 for no such bound.
	most int
}

// contenders returns all of them, the one that is measured against first.
func contenders() []contender {
	return []contender{
		{name: nameDirect, what: "the load generator itself does both legs", start: enterDirect},
		{name: nameCarryover, what: "bin/carryover, logs at info into a file, metrics on, limits on, traces off", start: enterCarryover(nameCarryover)},
		{name: nameCarryoverStd, what: "the same with net/http's client towards the engines", start: enterCarryover(nameCarryoverStd, "--upstream-client", "std")},
		{name: nameNginx, what: "one worker, one hop to decode: no prefill, no KV, no proof", start: enterNginx},
		{name: nameRelay, what: "bytes in Go, one hop to decode: nothing is parsed", start: enterRelay},
		// httpx opens 100 connections to a server at most, which is the default of its Limits.
		{name: namePython, what: "vLLM's example disagg_proxy_multiturn.py under uvicorn, uvloop and httptools", start: enterPython, most: 100},
	}
}

// errNotMeasured is why a contender can't be measured here.
type errNotMeasured string

// Error says why.
func (e errNotMeasured) Error() string { return string(e) }

// site is where contenders find what they need, and leave what they write.
type site struct {
	self          []string // the command that is this program, and the environment that it needs
	variables     []string
	carryover     string // program
	pythonExample string // file, "" for none
	python        string // interpreter of the environment that the example needs
	logs          string // folder
}

// log is the file of a process that works for a workload.
func (s *site) log(w workload, name string) string {
	return filepath.Join(s.logs, strings.ReplaceAll(w.Name, " ", "-")+"-"+name+".log")
}

// entrant is a contender that has started.
type entrant struct {
	url       string   // where clients go, "" for the direct way
	admin     string   // Carryover's listener for operators
	direct    *engines // for the direct way
	hides     bool     // clients get no kv_transfer_params
	measured  *process // nil for the direct way
	processes []*process
}

// stop ends all that was started, the last first.
func (e *entrant) stop() {
	for i := len(e.processes) - 1; i >= 0; i-- {
		e.processes[i].stop()
	}
}

// add starts a process that ends with the entrant.
func (e *entrant) add(ctx context.Context, c command) (*process, error) {
	p, err := start(ctx, c)
	if err == nil {
		e.processes = append(e.processes, p)
	}
	return p, err
}

// entering starts what enter starts, or nothing if that fails.
func entering(enter func(*entrant) error) (*entrant, error) {
	e := &entrant{}
	if err := enter(e); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

func enterDirect(_ context.Context, _ *site, _ workload, e *engines) (*entrant, error) {
	return &entrant{direct: e}, nil
}

func enterRelay(ctx context.Context, s *site, w workload, e *engines) (*entrant, error) {
	return entering(func(in *entrant) (err error) {
		var address string
		in.measured, err = in.add(ctx, s.own(command{name: nameRelay, log: s.log(w, nameRelay), firstLine: &address}, "relay", "--to", hostOf(e.Decode)))
		in.url = "http://" + strings.TrimSpace(address)
		return err
	})
}

// own completes the command of a process that is this program.
func (s *site) own(c command, arguments ...string) command {
	c.binary, c.arguments, c.variables = s.self[0], append(s.self[1:len(s.self):len(s.self)], arguments...), s.variables
	return c
}

// hostOf returns host and port of a URL of an engine.
func hostOf(url string) string { return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/") }

// missing reports whether a contender could not be measured, and why.
func missing(err error) (why string, ok bool) {
	var not errNotMeasured
	if errors.As(err, &not) {
		return string(not), true
	}
	return "", false
}
