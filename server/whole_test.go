package server_test

import (
	"net/http"
	"testing"
	"time"

	"carryover/server"
)

// wholeAsks are requests without stream, by API.
func wholeAsks() map[string]string {
	asks := map[string]string{chatPath: ask("", false, "q"), textPath: `{"model":"m","prompt":"q"}`}
	for _, api := range agentPaths() {
		asks[api.path] = api.ask + "}"
	}
	return asks
}

// An engine sends nothing of an answer that comes whole before it has finished it. So the time in which a stream has to begin is not its own,
// neither for a leg nor for another try.
func TestWhole_MayTakeLongerThanAStreamToBegin(t *testing.T) {
	for name, s := range map[string]setup{"prefill and decode": {}, "decode alone": {deadPrefills: -1}, "of two": {decodes: 2}} {
		s.cfg = func(c *server.Config) { c.FirstByteTimeout = time.Nanosecond }
		r := newRig(t, s)
		for path, body := range wholeAsks() {
			if p := r.sendTo(path, body); p.status != http.StatusOK || p.err != nil {
				t.Errorf("%s, %s: %d %s %v", name, path, p.status, p.body, p.err)
			}
		}
		r.decode[0].next(status(http.StatusServiceUnavailable, "busy"))
		r.wantOK(r.send(ask("", false, "another")), "")
	}
}

// No engine is blamed for answers that take longer than the limit: how long they are, the client says.
func TestWhole_TakingTooLongIsNobodysFault(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]behaviour{
		"no headers": silent,
		"no body": func(w http.ResponseWriter, q *http.Request, l leg) {
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			silent(w, q, l)
		},
	} {
		r := newRig(t, setup{fleet: frozen, cfg: func(c *server.Config) { c.AnswerTimeout = soonOver }})
		r.decode[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
			if l.rescues() {
				decodes(w, q, l)
				return
			}
			late(w, q, l)
		})
		answers := make(chan reply, 6) // as many as would open a circuit
		for range cap(answers) {
			go func() { answers <- r.turn("", 1, false) }()
		}
		for range cap(answers) {
			r.wantError(<-answers, http.StatusGatewayTimeout, "decode_timeout")
		}
		if got := r.state(r.decode[0]); got != "up" {
			t.Errorf("%s: it is %s, want up", name, got)
		}
	}
}
