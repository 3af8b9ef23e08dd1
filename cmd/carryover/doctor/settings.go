package doctor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/server/pins"
	"carryover/upstream"
)

// fewFiles is the limit of open files below which it is worth mentioning: shells begin with 1024.
const fewFiles = 1024

// settings examines values that Load accepts although they are seldom intended. Values that it refuses, such as an admin listener
// that others reach without a token, or Redis without a secret, have ended the command before.
func (d *doctor) settings(files int) {
	cfg, r := d.cfg, d.report
	capacity := max(16, (files-app.ReservedFiles)/app.FilesPerTurn)
	switch streams := cfg.Limits.MaxStreams; {
	case streams > capacity:
		r.found(whereSettings, codeOpenFiles, fmt.Sprintf("--max-streams %d, and %d files may be open, enough for %d turns", streams, files, capacity))
	case files < fewFiles:
		r.found(whereSettings, codeOpenFiles, fmt.Sprintf("%d files may be open, enough for %d turns at once", files, capacity))
	default:
		r.holds(whereSettings, codeOpenFiles, "")
	}
	d.handBack()
	if !cfg.Connector.ReusesKV() {
		r.holds(whereSettings, codeNoReuse, cfg.Connector.Name+": "+diagnoses()[codeNoReuse].holds)
		return
	}
	if cfg.Proof.Mode == string(server.ProofHistory) {
		r.found(whereSettings, codeHistory, "--proof history")
	} else {
		r.holds(whereSettings, codeHistory, "")
	}
	for model, mode := range cfg.Proof.Models {
		if mode == string(server.ProofHistory) {
			r.found(whereSettings, codeHistory, "proof.models has history for "+model)
		}
	}
	shortest := cfg.Store.DecoderKVTTL
	for _, i := range cfg.Decode {
		shortest = min(shortest, i.KVTTL)
	}
	useful := shortest - pins.MarginWithExpiry
	what := ""
	if cfg.Store.TTL > useful {
		what = fmt.Sprintf("store.ttl is %s, and decode keeps its blocks for %s: tickets end after %s", config.FormatDuration(cfg.Store.TTL), config.FormatDuration(shortest), config.FormatDuration(useful))
	}
	r.check(whereSettings, codeTTLOrder, what, "{ttl}", config.FormatDuration(useful))
}

// listed examines the instances with each other, and their clocks.
func (d *doctor) listed(ctx context.Context) {
	r := d.report
	switch {
	case len(d.prefill)+len(d.decode) == 0:
		r.found(whereSettings, codeNoInstance, "no instance is known")
	case len(d.prefill) == 0:
		r.found(whereSettings, codeNoInstance, "no prefill instance is known")
	case len(d.decode) == 0:
		r.found(whereSettings, codeNoInstance, "no decode instance is known")
	default:
		r.holds(whereSettings, codeNoInstance, "")
	}
	for _, list := range [][]*examined{d.prefill, d.decode} {
		seen := map[string]*examined{}
		for _, e := range list {
			if e.start == "" || e.Ranked { // ranks are one server on purpose
				continue
			}
			what := ""
			if first := seen[e.start]; first == nil {
				seen[e.start] = e
			} else if sameServer(ctx, first, e) {
				what = "it is " + first.Name + ", whose address and start it has"
			}
			r.check(e.where(), codeTwoNames, what, "{url}", e.BaseURL)
		}
	}
}

// sameServer reports whether two instances of one start have one address. The start alone does not tell: it counts hundredths of a
// second, and engines that are started together may have the same.
func sameServer(ctx context.Context, a, b *examined) bool {
	_, port, err := net.SplitHostPort(a.Authority())
	_, other, otherErr := net.SplitHostPort(b.Authority())
	if err != nil || otherErr != nil || port != other {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	here, err := net.DefaultResolver.LookupHost(ctx, a.Host())
	there, otherErr := net.DefaultResolver.LookupHost(ctx, b.Host())
	return err == nil && otherErr == nil && slices.ContainsFunc(here, func(address string) bool { return slices.Contains(there, address) })
}

// clockApart returns a problem if the start of an engine lies ahead of this clock, "" otherwise. It cannot see a clock that is behind.
func clockApart(start string, now time.Time) string {
	seconds, err := strconv.ParseFloat(start, 64) // 1.79e+09 among others
	if err != nil {
		return ""
	}
	if ahead := time.UnixMilli(int64(seconds * 1000)).Sub(now); ahead > clockSlack {
		return fmt.Sprintf("by its own clock it will start in %s", ahead.Round(time.Second))
	}
	return ""
}

// clockSlack is how far clocks may differ: replicas tolerate two seconds.
const clockSlack = 2 * time.Second

// provesHistory reports whether turns of a model have the history proof.
func provesHistory(cfg config.Config, model string) bool {
	mode, own := cfg.Proof.Models[model]
	if !own {
		mode = cfg.Proof.Mode
	}
	return mode == string(server.ProofHistory)
}

// where is how findings name an instance.
func (e *examined) where() string { return e.Role.String() + " " + e.Name }

// pairName is how findings name a pair.
func pairName(prefill, decode *upstream.Instance) string { return prefill.Name + " -> " + decode.Name }
