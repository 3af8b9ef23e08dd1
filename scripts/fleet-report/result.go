package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// What auto has to reach.
const (
	ttftAgainstRoundRobin = 0.75
	hitsBelowAffinity     = 0.03
)

// result is what one run showed.
type result struct {
	scale           float64
	spoken          []spoken
	shares          []float64 // of the turns that each prefill instance had, by its place
	failed          []failure
	corrupt, double int

	killedAt time.Time
	victims  []*process
	killed   []string // their names
}

// failure is a turn that its client did not get.
type failure struct {
	spoken
	reached bool // a killed instance
}

// account adds what the proxy's log says of the turns.
func (r *result) account(f *fleet) {
	var counts []float64
	total := 0.0
	for _, p := range f.prefill {
		n := 0.0
		for _, s := range r.spoken {
			if isFor(f.log.lines[s.id].Prefill, p) {
				n++
			}
		}
		counts, total = append(counts, n), total+n
	}
	for _, n := range counts {
		r.shares = append(r.shares, n/max(total, 1))
	}
	for _, p := range r.victims {
		r.killed = append(r.killed, p.name)
	}
	for _, s := range r.spoken {
		if s.err != nil {
			r.failed = append(r.failed, failure{s, r.reached(s, f.log.lines[s.id])})
		}
	}
}

// reached reports whether a failed turn was under way on a killed instance: it began before the kill, and its last leg of that role went
// to the instance and was not refused, as one is that comes after the end.
func (r *result) reached(s spoken, line turnLine) bool {
	if !s.began.Before(r.killedAt) || strings.Contains(line.Error, "refused") {
		return false
	}
	return slices.ContainsFunc(r.victims, func(p *process) bool { return isFor(line.Prefill, p) || isFor(line.Decode, p) })
}

// isFor reports whether the proxy's name of an instance is that of p.
func isFor(instance string, p *process) bool {
	return instance != "" && strings.HasSuffix(p.url, instance[strings.LastIndexByte(instance, '/')+1:])
}

func (r *result) lost() (list []failure) {
	for _, f := range r.failed {
		if !f.reached {
			list = append(list, f)
		}
	}
	return list
}

// ttft is a percentile of the times to the first token, of engine time: the smallest time that so large a share did not exceed.
func (r *result) ttft(share float64) time.Duration {
	var times []time.Duration
	for _, s := range r.spoken {
		if s.err == nil {
			times = append(times, s.ttft)
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	at := max(0, int(math.Ceil(share*float64(len(times))))-1)
	return time.Duration(float64(times[at]) * r.scale)
}

// hitRate is the share of answered turns after the first of their conversation that used a ticket.
func (r *result) hitRate() float64 {
	hits, of := 0.0, 0.0
	for _, s := range r.spoken {
		if s.err != nil || s.first {
			continue
		}
		of++
		if s.hit {
			hits++
		}
	}
	return hits / max(of, 1)
}

func header(out io.Writer) {
	fmt.Fprintf(out, "%-20s %8s %8s %8s  %8s  %-28s %6s %7s %6s\n", "policy", "p50 s", "p95 s", "p99 s", "hits", "turns of each prefill", "failed", "corrupt", "double")
}

func (r *result) print(out io.Writer, name string) {
	var shares []string
	for _, s := range r.shares {
		shares = append(shares, fmt.Sprintf("%4.1f %%", 100*s))
	}
	fmt.Fprintf(out, "%-20s %8.2f %8.2f %8.2f  %6.1f %%  %-28s %6d %7d %6d\n", name, r.ttft(0.5).Seconds(), r.ttft(0.95).Seconds(), r.ttft(0.99).Seconds(),
		100*r.hitRate(), strings.Join(shares, "  "), len(r.failed), r.corrupt, r.double)
}

// judge says what is wrong with a run by itself.
func (r *result) judge(name string) error {
	var errs []error
	if r.corrupt+r.double > 0 {
		errs = append(errs, fmt.Errorf("%s: %d corrupt and %d double reads", name, r.corrupt, r.double))
	}
	for _, f := range r.lost() {
		errs = append(errs, fmt.Errorf("%s: turn %s is lost: %w", name, f.id, f.err))
	}
	return errors.Join(errs...)
}

// compare says where auto falls short of the other policies, as far as they have run.
func compare(results map[string]result) error {
	auto, ok := results["auto"]
	if !ok {
		return nil
	}
	var errs []error
	if other, ok := results["round_robin"]; ok {
		if got, most := auto.ttft(0.95), time.Duration(ttftAgainstRoundRobin*float64(other.ttft(0.95))); got > most {
			errs = append(errs, fmt.Errorf("auto: p95 of the time to the first token is %v, want %v at most, %v of round robin's", got, most, ttftAgainstRoundRobin))
		}
	}
	if other, ok := results["affinity"]; ok {
		if got, least := auto.hitRate(), other.hitRate()-hitsBelowAffinity; got < least {
			errs = append(errs, fmt.Errorf("auto: hit rate is %.3f, want %.3f at least, three points below affinity's", got, least))
		}
	}
	return errors.Join(errs...)
}
