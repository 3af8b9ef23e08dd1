package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
)

// What becomes of an answer whose ids were not counted: whether the usage that counts them is seen depends on the way on which the
// reading of the answer ends.

// loses has decode lose the id of its last token on the way. Its blocks hold all tokens but the last, so that remote_num_tokens fits to
// what is told.
func loses(a *idAnswer) { a.told = a.told[:len(a.told)-1] }

// usageOf is the usage of an answer, with all ids that were sampled.
func usageOf(a *idAnswer) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, len(a.prompt), len(a.prompt)+len(a.output), len(a.output))
}

// untilFinish is a decode instance whose answers have lost an id, and whose usage never comes: the client leaves before.
func untilFinish(w http.ResponseWriter, r *http.Request, l leg) {
	a := answerOf(l)
	loses(a)
	events := a.events()
	finish := len(a.told)
	say(w, events[:finish-1]...)
	// The last piece of text and the finish come in one read, so that a client with the piece has left behind the finish.
	_, _ = io.WriteString(w, frames(events[finish-1:finish+1]...))
	_ = http.NewResponseController(w).Flush()
	silent(w, r, l)
}

func TestUncounted_ClientThatLeavesBeforeTheUsageLeavesNoTicket(t *testing.T) {
	for name, row := range map[string]struct{ conversation, options, last string }{
		"we have asked for it":        {"c", "", `"token_ids":null`},
		"the client has":              {"c", `,"stream_options":{"include_usage":true}`, `"finish_reason":"stop"`},
		"no conversation, we have":    {"", "", `"token_ids":null`},
		"no conversation, the client": {"", `,"stream_options":{"include_usage":true}`, `"finish_reason":"stop"`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeaver(t)
			r := newRig(t, setup{cfg: handingBack, front: contexts(l.arrived)})
			r.inIDs(nil)
			r.decode[0].next(untilFinish)
			request := plus(askIDs(row.conversation, true, count(100, 200)...), row.options)
			resp, err := r.open(l.ctx, http.MethodPost, textPath, strings.NewReader(request))
			if err != nil {
				t.Fatal(err)
			}
			readUntilTimes(t, resp.Body, row.last, map[bool]int{true: 1, false: len(outputIDs()) - 1}[row.options != ""])
			l.leave()
			_ = resp.Body.Close()
			l.noticed(t)
			r.wantStored(1, "uncounted")
			if n := r.server.HandBack(t.Context(), overdue); n != 0 || r.store.Len() != 0 {
				t.Errorf("got %d hand-backs and %d conversations, want none", n, r.store.Len())
			}
			if r.sendIDs("", true, count(300, 90)...); len(r.prefill[0].seen()) != 2 {
				t.Fatalf("got %d prefill legs, want 2", len(r.prefill[0].seen()))
			}
			r.wantCarried(1, "cmpl-"+r.decode[0].seen()[0].id()) // the blocks are released
		})
	}
}

func TestUncounted_EngineThatTellsNoUsageLeavesNoTicket(t *testing.T) {
	for name, row := range map[string]struct {
		stream  bool
		options string
	}{
		"a stream":                        {true, ""},
		"a stream, the client has asked":  {true, `,"stream_options":{"include_usage":true}`},
		"a whole answer":                  {false, ""},
		"a whole answer of which half is": {false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) {
				byTokens(c)
				releasing(c)
			}})
			r.inIDs(func(a *idAnswer) {
				a.usage = ""
				if strings.Contains(name, "half") {
					a.usage = `{"prompt_tokens":200}`
				}
			})
			r.wantOK(r.sendTo(textPath, plus(askIDs("c", row.stream, count(100, 200)...), row.options)), "")
			r.wantStored(1, "uncounted")
		})
	}
}

// A program that ends its turns leaves no ticket of an answer that is not counted either.
func TestUncounted_ShutdownBeforeTheUsage(t *testing.T) {
	r := run(t, setup{cfg: func(c *server.Config) {
		byTokens(c)
		c.ShutdownGrace = 0
	}})
	r.inIDs(nil)
	r.decode[0].next(untilFinish)
	resp, err := r.open(t.Context(), http.MethodPost, textPath, strings.NewReader(plus(askIDs("c", true, count(100, 200)...), `,"stream_options":{"include_usage":true}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	readUntilTimes(t, resp.Body, `"finish_reason":"stop"`, 1)
	r.stop()
	r.end()
	r.wantStored(1, "uncounted")
}

// readUntilTimes reads lines until so many have the text, and returns the rest unread.
func readUntilTimes(t *testing.T, body io.Reader, text string, n int) {
	t.Helper()
	lines := bufio.NewReader(body)
	for seen := 0; seen < n; {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, text) {
			seen++
		}
		if err != nil {
			t.Fatalf("stream ends (%v) before %q came %d times", err, text, n)
		}
	}
}

func plus(request, members string) string { return strings.TrimSuffix(request, "}") + members + "}" }
