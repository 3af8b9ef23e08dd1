package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"carryover/logtest"
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

// A step is a list of the first source or the second, or the end of the first.
func TestTogether(t *testing.T) {
	for name, script := range map[string]string{
		"it waits for the first list of each": "watch; first a; first b; first b; first b; quiet;" + // the third has room once the second is read, and the first has been set by then
			"second; want b; second c d; want b c d; first; want c d; first; second; want ",
		"a clash is logged again once it has ended": "watch; second a=h:80; first a; want a h:80; first; want a=http://h:80; logged 1 two instances; first a; want a h:80; first;" +
			"want a=http://h:80; logged 2 two instances",
		"a source that ends leaves its last": "watch; first a; second; want a; end; second b; want a b",

		"an address twice":                 "watch; first a; second other=a:80; want a; logged 1 two instances",
		"one instance twice":               "watch; first a; second a; want a; logged 1 two instances",
		"a name twice":                     "watch; first a; second a=10.0.0.1:8000; want a 10.0.0.1:8000; first more a; want more a 10.0.0.1:8000; logged 1 two instances",
		"a name twice, its address a name": "watch; first a h:80=x:80; second a=h:80; want a h:80=http://x:80; logged 1 two instances",
		"a name twice in one source":       "watch; first; second a a=h; want a h:80=http://h; logged 1 two instances",
	} {
		t.Run(name, func(t *testing.T) {
			first, second, log := newGiven(), newGiven(), &logtest.Log{}
			play(t, script, Together{[]upstream.Source{first, second}, log.Logger()}, log, map[string]func(string){
				"first":  func(names string) { first.lists <- instances(names) },
				"second": func(names string) { second.lists <- instances(names) },
				"end":    func(string) { close(first.lists) },
			})
		})
	}
}

func TestTogether_RolesAndRanksAreApart(t *testing.T) {
	prefill := instance("a")
	prefill.Role = upstream.RolePrefill
	for want, tc := range map[string]struct {
		second []upstream.Instance
		logged int
	}{
		"a@1 a":                                  {[]upstream.Instance{prefill}, 0},
		"a@1 b@0=http://a@1 b@1=http://a@1":      {Ranks(instance("b=a@1"), 2), 0},
		"a@1 a@0=http://h:80 h:80@1=http://h:80": {Ranks(instance("a=h:80"), 2), 1},
	} {
		first, second, log := &Listed{}, &Listed{}, &logtest.Log{}
		first.Replace(instances("a@1"))
		second.Replace(tc.second)
		watch(t, Together{[]upstream.Source{first, second}, log.Logger()}).want(want)
		if log.Count("two instances") != tc.logged {
			t.Errorf("%s: logged %s, want %d", want, log, tc.logged)
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
		first.lists <- instances("a")
		second.err = tc.ends
		sets := make(chan []upstream.Instance, 8)
		ended := make(chan error)
		go func() {
			ended <- Together{[]upstream.Source{first, second}, slog.New(slog.DiscardHandler)}.Watch(t.Context(), func(all []upstream.Instance) { sets <- all })
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

func TestTogether_ARegistrationIsSetWhenAddReturns(t *testing.T) {
	registry, listed := &Registry{}, &Listed{}
	listed.Replace(instances("a"))
	w := watch(t, Together{[]upstream.Source{listed, registry}, slog.New(slog.DiscardHandler)})
	w.want("a")
	want := "a"
	for n := range 100 {
		name := fmt.Sprintf("d-%d", n)
		must(t, registry.Add(instance(name)))
		want += " " + name
		w.now(want)
	}
}
