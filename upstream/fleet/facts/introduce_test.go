package facts

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream"
)

// What a connector has to know of an engine is asked for once per start, of a server beside it too.
func TestIncarnation_IsIntroducedOnce(t *testing.T) {
	var asked atomic.Int32
	bootstrap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Authorization"); key != "" {
			t.Errorf("a server beside the engine got the engines' key, %q", key)
		}
		answers(http.StatusOK, "engine-7")(w, r)
	}))
	defer bootstrap.Close()
	r := newRig(t)
	r.Client = upstream.NewClient(upstream.ClientConfig{DialTimeout: 2 * time.Second, Key: "key-of-engines"})
	defer r.Client.Close()
	r.Introduce = func(ctx context.Context, instance *upstream.Instance, fetch upstream.Fetch) (any, error) {
		asked.Add(1)
		if instance.Name != "p" {
			t.Errorf("asked of %s", instance.Name)
		}
		_, body, err := fetch(ctx, bootstrap.URL, "/query")
		return string(body), err
	}
	e := r.named(upstream.RolePrefill, "p")[0]
	for incarnation, n := range map[string]int32{"1": 1, "2": 2} {
		s := tells(e, incarnation)
		for range 3 {
			if got, err := s.Introduction.Facts(t.Context()); got != "engine-7" || err != nil {
				t.Errorf("start %s: got %v, %v", incarnation, got, err)
			}
		}
		if incarnation == "2" && asked.Load() > 2 || asked.Load() < 1 {
			t.Errorf("asked %d times after start %s, want once per start (%d)", asked.Load(), incarnation, n)
		}
	}
}

// An engine that can't be got to know gets no leg; it is asked again after a while.
func TestIncarnation_ThatIsNotIntroduced(t *testing.T) {
	broken := errors.New("no bootstrap server")
	var asked atomic.Int32
	r := newRig(t)
	r.Introduce = func(context.Context, *upstream.Instance, upstream.Fetch) (any, error) {
		if asked.Add(1) == 1 {
			return nil, broken
		}
		return 7, nil
	}
	s := tells(r.named(upstream.RoleDecode, "d")[0], "1")
	for range 2 { // the second time it rests
		_, err := s.Introduction.Facts(t.Context())
		var leg *upstream.LegError
		if !errors.As(err, &leg) || leg.Sent || leg.Role != upstream.RoleDecode || !errors.Is(err, broken) {
			t.Errorf("got %v, want the leg's failure, with nothing sent", err)
		}
	}
	r.pass(introduceRetry)
	if got, err := s.Introduction.Facts(t.Context()); got != 7 || err != nil || asked.Load() != 2 {
		t.Errorf("got %v, %v after %d questions", got, err, asked.Load())
	}
}

func TestIncarnation_NeedsNoIntroductionWhereTheConnectorNeedsNone(t *testing.T) {
	if got, err := tells(newRig(t).named(upstream.RolePrefill, "p")[0], "1").Introduction.Facts(t.Context()); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// An incarnation that is not known is equal to nothing, not even to itself: behind a reading that fails there may be another process each
// time.
func TestIncarnation_UnknownIsIntroducedEachTime(t *testing.T) {
	var asked atomic.Int32
	r := newRig(t)
	r.Introduce = func(context.Context, *upstream.Instance, upstream.Fetch) (any, error) { return asked.Add(1), nil }
	e := r.named(upstream.RolePrefill, "p")[0]
	for n := range int32(3) {
		if got, err := e.Last().Introduction.Facts(t.Context()); got != n+1 || err != nil {
			t.Errorf("got %v, %v, want what the process says that is there now, %d", got, err, n+1)
		}
	}
}
