package discovery

import (
	"carryover/logtest"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"carryover/upstream"
)

// given is a source that sets the lists of a channel, and ends with an error when that is closed.
type given struct {
	lists chan []upstream.Instance
	err   error
}

func newGiven() *given { return &given{lists: make(chan []upstream.Instance, 1)} }

func (g *given) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case all, open := <-g.lists:
			if !open {
				return g.err
			}
			set(all)
		}
	}
}

func together(log *logtest.Log, sources ...upstream.Source) Together {
	return Together{Sources: sources, Logger: log.Logger()}
}

func TestTogether_WaitsForTheFirstListOfEach(t *testing.T) {
	first, second := newGiven(), newGiven()
	w := watch(t, together(&logtest.Log{}, first, second))
	first.lists <- []upstream.Instance{instance("a")}
	for range 3 { // the third has room once the second is read, and the first has been set by then
		first.lists <- []upstream.Instance{instance("b")}
	}
	w.quiet(t)
	second.lists <- nil
	w.want(t, "b")
	second.lists <- []upstream.Instance{instance("c"), instance("d")}
	w.want(t, "b c d")
	first.lists <- nil
	w.want(t, "c d")
	first.lists <- nil // changes nothing
	second.lists <- nil
	w.want(t, "")
}

func TestTogether_TheFirstSourceCounts(t *testing.T) {
	weighted := instance("other", "a:80")
	weighted.Weight = 7
	prefill := instance("a")
	prefill.Role = upstream.RolePrefill
	for name, tc := range map[string]struct {
		first, second []upstream.Instance
		want          string
		logged        int
	}{
		"an address twice":                 {[]upstream.Instance{instance("a")}, []upstream.Instance{weighted}, "a", 1},
		"one instance twice":               {[]upstream.Instance{instance("a")}, []upstream.Instance{instance("a")}, "a", 1},
		"a name twice":                     {[]upstream.Instance{instance("a")}, []upstream.Instance{instance("a", "10.0.0.1:8000")}, "a 10.0.0.1:8000", 1},
		"a name twice, one a rank":         {[]upstream.Instance{instance("a@1")}, Ranks(instance("a", "h:80"), 2), "a@1 a@0 h:80@1", 1},
		"a name twice, its address a name": {[]upstream.Instance{instance("a"), instance("h:80", "x:80")}, []upstream.Instance{instance("a", "h:80")}, "a h:80", 1},
		"a name twice in one source":       {nil, []upstream.Instance{instance("a"), instance("a", "h")}, "a h:80", 1},
		"the other role":                   {[]upstream.Instance{instance("a")}, []upstream.Instance{prefill}, "a a", 0},
		"ranks of one address":             {[]upstream.Instance{instance("a")}, Ranks(instance("b", "a"), 2), "a b@0 b@1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			first, second, log := newGiven(), newGiven(), &logtest.Log{}
			w := watch(t, together(log, first, second))
			first.lists <- tc.first
			second.lists <- tc.second
			w.want(t, tc.want)
			first.lists <- append([]upstream.Instance{instance("more")}, tc.first...)
			if got := w.next(t); got != "more "+tc.want {
				t.Errorf("set(%s), want more %s", got, tc.want)
			}
			if got := log.Lines("two instances"); len(got) != tc.logged {
				t.Errorf("logged %q, want %d", got, tc.logged)
			}
		})
	}
}

func TestTogether_LogsAClashAgainOnceItHasEnded(t *testing.T) {
	first, second, log := newGiven(), newGiven(), &logtest.Log{}
	w := watch(t, together(log, first, second))
	second.lists <- []upstream.Instance{instance("a", "h:80")}
	for round := range 3 {
		first.lists <- []upstream.Instance{instance("a")}
		w.want(t, "a h:80")
		first.lists <- nil
		w.want(t, "a")
		if got := log.Lines("two instances"); len(got) != round+1 {
			t.Fatalf("logged %q, want %d", got, round+1)
		}
	}
}

func TestTogether_EndsWithTheSourceThatFails(t *testing.T) {
	broken := errors.New("no such service")
	for name, tc := range map[string]struct {
		ends error
		had  bool
		want string
	}{
		"before its list":                {broken, false, "no such service"},
		"later":                          {broken, true, "no such service"},
		"before its list, without error": {nil, false, "source 2 of 2 ended before it gave a list of instances"},
	} {
		first, second := newGiven(), newGiven()
		first.lists <- []upstream.Instance{instance("a")}
		second.err = tc.ends
		sets := make(chan []upstream.Instance, 8)
		ended := make(chan error)
		go func() {
			ended <- Together{Sources: []upstream.Source{first, second}, Logger: slog.New(slog.DiscardHandler)}.
				Watch(t.Context(), func(all []upstream.Instance) { sets <- all })
		}()
		if tc.had {
			second.lists <- nil
			<-sets
		}
		close(second.lists)
		if err := <-ended; err == nil || err.Error() != tc.want {
			t.Errorf("%s: Watch = %v, want %s", name, err, tc.want)
		}
	}
}

func TestTogether_ASourceThatEndsLeavesItsLast(t *testing.T) {
	first, second := newGiven(), newGiven()
	w := watch(t, together(&logtest.Log{}, first, second))
	first.lists <- []upstream.Instance{instance("a")}
	second.lists <- nil
	w.want(t, "a")
	close(first.lists)
	second.lists <- []upstream.Instance{instance("b")}
	w.want(t, "a b")
}

func TestTogether_ARegistrationIsSetWhenAddReturns(t *testing.T) {
	registry, listed := &Registry{}, &Listed{}
	listed.Replace([]upstream.Instance{instance("a")})
	w := watch(t, together(&logtest.Log{}, listed, registry))
	w.want(t, "a")
	for n := range 100 {
		must(t, registry.Add(instance(fmt.Sprintf("d-%d", n))))
		if len(w.lists) != 1 {
			t.Fatal("Add returned before set was called")
		}
		<-w.lists
	}
}
