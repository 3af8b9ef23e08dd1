package contender

import (
	"context"
	"slices"
	"strings"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/process"
)

// Names of contenders.
const (
	Direct    = "direct"
	Carryover = "carryover"
	Nginx     = "nginx"
	Relay     = "relay"
	Python    = "python"
)

// Contender is one way from clients to engines.
type Contender struct {
	Name string
	// Start has it serve one workload on the engines. A NotMeasured is why it can't here.
	Start func(context.Context, *Site, load.Workload, *engines.Pair) (*Entrant, error)
	// Most is how many streams it has open at once, if it can't have as many as it is asked for; 0 for no such bound.
	Most int
}

// All returns all of them, the one that is measured against first.
func All() []Contender {
	return []Contender{
		{Name: Direct, Start: enterDirect},       // the load generator itself does both legs
		{Name: Carryover, Start: enterCarryover}, // bin/carryover, logs at info into a file, metrics on, limits on, traces off
		{Name: Nginx, Start: enterNginx},         // one worker, one hop to decode: no prefill, no KV, no proof
		{Name: Relay, Start: enterRelay},         // bytes in Go, one hop to decode: nothing is parsed
		// httpx opens 100 connections to a server at most, which is the default of its Limits.
		{Name: Python, Start: enterPython, Most: 100}, // vLLM's example disagg_proxy_multiturn.py under uvicorn, uvloop and httptools
	}
}

// Named returns the one of that name. ok is false if there is none.
func Named(name string) (c Contender, ok bool) {
	for _, c := range All() {
		if c.Name == name {
			return c, true
		}
	}
	return Contender{}, false
}

// NotMeasured is why a contender can't be measured here.
type NotMeasured string

// Error says why.
func (n NotMeasured) Error() string { return string(n) }

// Entrant is a contender that has started.
type Entrant struct {
	URL       string           // where clients go, "" for the direct way
	Direct    *engines.Pair    // for the direct way
	Hides     bool             // clients get no kv_transfer_params
	Measured  *process.Process // nil for the direct way
	processes []*process.Process
}

// Stop ends all that was started, the last first.
func (e *Entrant) Stop() {
	for _, p := range slices.Backward(e.processes) {
		p.Stop()
	}
}

// add starts a process that ends with the entrant.
func (e *Entrant) add(ctx context.Context, c process.Command) (*process.Process, error) {
	p, err := process.Start(ctx, c)
	if err == nil {
		e.processes = append(e.processes, p)
	}
	return p, err
}

// entering starts what enter starts, or nothing if that fails.
func entering(enter func(*Entrant) error) (*Entrant, error) {
	e := &Entrant{}
	if err := enter(e); err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

func enterDirect(_ context.Context, _ *Site, _ load.Workload, e *engines.Pair) (*Entrant, error) {
	return &Entrant{Direct: e}, nil
}

func enterRelay(ctx context.Context, s *Site, w load.Workload, e *engines.Pair) (*Entrant, error) {
	return entering(func(in *Entrant) (err error) {
		var address string
		in.Measured, err = in.add(ctx, s.own(process.Command{Name: Relay, Log: s.log(w, Relay), FirstLine: &address}, "relay", "--to", hostOf(e.Decode)))
		in.URL = "http://" + strings.TrimSpace(address)
		return err
	})
}

// hostOf returns host and port of a URL of an engine.
func hostOf(url string) string { return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/") }
