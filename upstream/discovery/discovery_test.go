package discovery

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a Watch that runs, and the lists that it has set.
type watched struct {
	lists chan []upstream.Instance // as many as a test lets come unread
	ended chan error               // one result
}

// watch runs source until the test ends.
func watch(t *testing.T, source upstream.Source) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{lists: make(chan []upstream.Instance, 4096), ended: make(chan error, 1)}
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

// next waits for the next list and returns its names.
func (w *watched) next(t *testing.T) string {
	t.Helper()
	select {
	case all := <-w.lists:
		return names(all)
	case err := <-w.ended:
		t.Fatalf("Watch ended with %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("no list")
	}
	return ""
}

// want waits for the next list, and fails if it has other names.
func (w *watched) want(t *testing.T, want string) {
	t.Helper()
	if got := w.next(t); got != want {
		t.Fatalf("set(%s), want %s", got, want)
	}
}

// quiet fails if a list has been set that the test has not read.
func (w *watched) quiet(t *testing.T) {
	t.Helper()
	select {
	case all := <-w.lists:
		t.Fatalf("set(%s), want no change", names(all))
	default:
	}
}

func names(all []upstream.Instance) string {
	var list []string
	for _, i := range all {
		list = append(list, i.Name)
	}
	return strings.Join(list, " ")
}

// instance is a decode instance whose address is its name, or the one that is given.
func instance(name string, at ...string) upstream.Instance {
	authority := strings.Join(append(at, name)[:1], "")
	return upstream.Instance{Name: name, BaseURL: "http://" + authority, Role: upstream.RoleDecode}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
