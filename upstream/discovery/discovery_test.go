package discovery

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/logtest"
	"carryover/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a Watch that runs, and the lists that it has set.
type watched struct {
	t     *testing.T
	lists chan []upstream.Instance // as many as a test lets come unread
	ended chan error               // one result
}

// watch runs source until the test ends.
func watch(t *testing.T, source upstream.Source) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{t: t, lists: make(chan []upstream.Instance, 4096), ended: make(chan error, 1)}
	go func() {
		w.ended <- source.Watch(ctx, func(all []upstream.Instance) { w.lists <- all })
		close(w.ended)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-w.ended; err != nil && !t.Failed() {
			t.Errorf("Watch = %v", err)
		}
	})
	return w
}

// next waits for the next list.
func (w *watched) next() []upstream.Instance {
	w.t.Helper()
	select {
	case all := <-w.lists:
		return all
	case err := <-w.ended:
		w.t.Fatalf("Watch ended with %v", err)
	case <-time.After(20 * time.Second):
		w.t.Fatal("no list")
	}
	return nil
}

// want waits for the next list, and fails if it has other names.
func (w *watched) want(want string) {
	w.t.Helper()
	if got := names(w.next()); got != want {
		w.t.Fatalf("set(%s), want %s", got, want)
	}
}

// now is want for a list that has been set already.
func (w *watched) now(want string) {
	w.t.Helper()
	if n := len(w.lists); n != 1 {
		w.t.Fatalf("%d lists are set, want one: %s", n, want)
	}
	w.want(want)
}

// quiet fails if a list has been set that the test has not read.
func (w *watched) quiet() {
	w.t.Helper()
	select {
	case all := <-w.lists:
		w.t.Fatalf("set(%s), want no change", names(all))
	default:
	}
}

// names are those of instances, each with its URL if that is not http://name, and its weight.
func names(all []upstream.Instance) string {
	var list []string
	for _, i := range all {
		if i.BaseURL != "http://"+i.Name {
			i.Name += "=" + i.BaseURL
		}
		if i.Weight > 0 {
			i.Name += fmt.Sprint("*", i.Weight)
		}
		list = append(list, i.Name)
	}
	return strings.Join(list, " ")
}

// instance is a decode instance by its name, as names writes it.
func instance(text string) upstream.Instance {
	name, at, apart := strings.Cut(text, "=")
	if !apart {
		at = name
	}
	return upstream.Instance{Name: name, BaseURL: "http://" + at, Role: upstream.RoleDecode}
}

func instances(texts string) (all []upstream.Instance) {
	for text := range strings.FieldsSeq(texts) {
		all = append(all, instance(text))
	}
	return all
}

// play plays a script of steps that semicolons separate: "watch" begins to watch a source, "want", "now" and "quiet" look at its lists, "logged N
// TEXT" at the log, and a test adds what else happens.
func play(t *testing.T, script string, source upstream.Source, log *logtest.Log, acts map[string]func(about string)) {
	t.Helper()
	var w *watched
	for step := range strings.SplitSeq(script, ";") {
		verb, about, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch verb {
		case "watch":
			w = watch(t, source)
		case "want":
			w.want(about)
		case "now":
			w.now(about)
		case "quiet":
			w.quiet()
		case "logged":
			_, text, _ := strings.Cut(about, " ")
			if got := fmt.Sprint(log.Count(text), " ", text); got != about {
				t.Errorf("%s: got %s\n%s", step, got, log)
			}
		default:
			acts[verb](about)
		}
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
