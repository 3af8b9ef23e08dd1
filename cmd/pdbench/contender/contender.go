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
	// Start starts the contender for one workload on the engines. It returns a NotMeasured if the contender cannot run here.
	Start func(context.Context, *Site, load.Workload, *engines.Pair) (*Entrant, error)
	// Most is the most streams that it can have open at once, 0 for no limit.
	Most int
}

// All returns all contenders, the reference first.
func All() []Contender {
	return []Contender{
		{Name: Direct, Start: enterDirect},       // the load generator itself does both legs
		{Name: Carryover, Start: enterCarryover}, // bin/carryover, logs at info into a file, metrics on, limits on, traces off
		{Name: Nginx, Start: enterNginx},         // one worker, one hop to decode: no prefill, no KV, no proof
		{Name: Relay, Start: enterRelay},         // bytes in Go, one hop to decode: nothing is parsed
		// httpx opens at most 100 connections to a server, the default of its Limits.
		{Name: Python, Start: enterPython, Most: 100}, // vLLM's example disagg_proxy_multiturn.py under uvicorn, uvloop and httptools
	}
}

// Named returns the contender with this name. ok is false if there is none.
func Named(name string) (c Contender, ok bool) {
	for _, c := range All() {
		if c.Name == name {
			return c, true
		}
	}
	return Contender{}, false
}

// NotMeasured is why a contender cannot be measured here.
type NotMeasured string

// Error returns the reason.
func (n NotMeasured) Error() string { return string(n) }

// Entrant is a contender that has started.
type Entrant struct {
	URL       string           // where clients go, "" for the direct way
	Direct    *engines.Pair    // for the direct way
	Hides     bool             // clients see no kv_transfer_params
	Measured  *process.Process // nil for the direct way
	processes []*process.Process
}

// Stop ends all that was started, in reverse order.
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

// entering returns an entrant after enter has started it. If enter fails, it ends what enter started.
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

func hostOf(url string) string { return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/") }
