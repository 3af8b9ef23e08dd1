package facts

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

// elsewhere is a fleet whose prompts are rendered by a server of its own.
func elsewhere(t *testing.T, act http.HandlerFunc) (s *rendering, asked func() int) {
	t.Helper()
	s = newRendering(t, map[string]http.HandlerFunc{"/render": answerJSON(`{"token_ids":[9]}`), "/count_tokens": answerJSON(`{"input_tokens":2}`)})
	var mu sync.Mutex
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n++
		mu.Unlock()
		act(w, r)
	}))
	t.Cleanup(srv.Close)
	at, err := upstream.NewInstance(upstream.RolePrefill, "render", srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.rig.fleetRenderer = &renderer{at: &at}
	return s, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func TestRender_ByAServerForTheWholeFleet(t *testing.T) {
	s, asked := elsewhere(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if !json.Valid(raw) || r.Header.Get("Authorization") != "Bearer a" || !strings.HasSuffix(r.URL.Path, "/render") {
			t.Errorf("%s got %s with %q", r.URL.Path, raw, r.Header.Get("Authorization"))
		}
		answerJSON(`{"token_ids":[1,2]}`)(w, r)
	})
	if s.Prompts.Renders(body.Messages) != Unknown {
		t.Error("known before it was asked")
	}
	for api, body := range map[body.API]string{body.Messages: thoughtless, body.Responses: responsesBody} {
		ids, err := s.prompt(t, api, body, "Bearer a")
		if err != nil || !slices.Equal(ids, []uint32{1, 2}) || s.Prompts.Renders(api) != Yes {
			t.Errorf("%s: got %v, %v, known as %d", api.Path(), ids, err, s.Prompts.Renders(api))
		}
	}
	if got, want := s.paths(), []string{"/v1/messages/count_tokens"}; !slices.Equal(got, want) || asked() != 2 {
		t.Errorf("the engine was asked %v, the server %d times", got, asked())
	}
}

func TestRender_AServerWithoutTheEndpointRests(t *testing.T) {
	s, asked := elsewhere(t, answers(404, `{"detail":"Not Found"}`))
	ask := func() error {
		_, err := s.prompt(t, body.Messages, messagesBody, "")
		return err
	}
	for range 2 {
		if err := ask(); !errors.Is(err, ErrNoRender) || s.Prompts.Renders(body.Messages) != No || s.Prompts.Renders(body.Responses) != Unknown {
			t.Errorf("got %v, known as %d and %d", err, s.Prompts.Renders(body.Messages), s.Prompts.Renders(body.Responses))
		}
	}
	s.rig.pass(renderRest - 1)
	if err := ask(); !errors.Is(err, ErrNoRender) || asked() != 1 {
		t.Errorf("got %v after %d questions, want one", err, asked())
	}
	s.rig.pass(1)
	if got := s.Prompts.Renders(body.Messages); got != Unknown {
		t.Errorf("after its rest it is known as %d", got)
	}
	if err := ask(); !errors.Is(err, ErrNoRender) || asked() != 2 {
		t.Errorf("got %v after %d questions, want two", err, asked())
	}
	if len(s.paths()) != 0 {
		t.Errorf("the engine was asked %v", s.paths())
	}
}

// A failure of the server is the turn's, not the engine's.
func TestRender_AServerThatFailsIsNamed(t *testing.T) {
	s, _ := elsewhere(t, answers(503, `{}`))
	_, err := s.prompt(t, body.Messages, messagesBody, "")
	var failed *upstream.LegError
	if !errors.As(err, &failed) || failed.Instance != "render" || failed.Status != 503 || s.Prompts.Renders(body.Messages) != Unknown {
		t.Errorf("got %v, known as %d", err, s.Prompts.Renders(body.Messages))
	}
}

// One that has rendered has the endpoint, whatever fails later.
func TestRender_AFailureTakesNothingBack(t *testing.T) {
	fails := false
	act := func(w http.ResponseWriter, r *http.Request) {
		if fails {
			answers(503, `{}`)(w, r)
			return
		}
		answerJSON(`{"token_ids":[1]}`)(w, r)
	}
	ofFleet, _ := elsewhere(t, act)
	for name, s := range map[string]*rendering{"engine": newRendering(t, map[string]http.HandlerFunc{"/render": act}), "fleet's": ofFleet} {
		for _, fails = range []bool{false, true} {
			if _, err := s.prompt(t, body.Messages, messagesBody, ""); (err != nil) != fails || s.Prompts.Renders(body.Messages) != Yes {
				t.Errorf("%s, fails %t: %v, known as %d", name, fails, err, s.Prompts.Renders(body.Messages))
			}
		}
	}
}
