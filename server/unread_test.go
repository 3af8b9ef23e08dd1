package server_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"carryover/server"
)

// padding are so many bytes of a member that nobody reads.
func padding(n int) string { return `,"pad":"` + strings.Repeat("x", n) + `"` }

// largeAnswer is an engine's whole answer with so many bytes besides, with its length or in chunks.
func largeAnswer(n int, chunked bool) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		body := wholeAnswer(l) + padding(n) + `,"kv_transfer_params":` + ticket(l) + "}"
		w.Header().Set("Content-Type", "application/json")
		if !chunked {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		_, _ = io.WriteString(w, body)
	}
}

// What is beyond the bound, or what no memory is left for, passes as it comes, and leaves no ticket. Nobody is to blame, and the client sees
// no params.
func TestUnread_WholeAnswersPass(t *testing.T) {
	for name, row := range map[string]struct {
		bytes, inflight int
		stored          string
	}{
		"small, little memory": {2 << 10, 1 << 20, "yes"},
		"within the memory":    {1 << 20, 64 << 20, "yes"},
		"beyond the memory":    {3 << 20, 1 << 20, "ineligible_unparsable"},
		"beyond a client's":    {6 << 20, 16 << 20, "ineligible_unparsable"},
		"beyond what is read":  {65 << 20, 1 << 30, "ineligible_unparsable"},
	} {
		for _, chunked := range []bool{false, true} {
			if row.bytes > 60<<20 && !chunked {
				continue // it is refused by its length
			}
			r := newRig(t, setup{fleet: frozen, cfg: func(c *server.Config) { c.MaxInflightBytes = int64(row.inflight); c.MaxBodyBytes = 1000 }})
			r.decode[0].always(largeAnswer(row.bytes, chunked))
			turns := 1
			if row.inflight == 1<<20 && !chunked {
				turns = 6
			}
			for n := range turns {
				p := r.turn("c"+strconv.Itoa(n), 1, false)
				l := r.decode[0].ofClients()[n]
				if want := wholeAnswer(l) + padding(row.bytes); p.status != http.StatusOK || p.err != nil || !strings.HasPrefix(p.body, want) {
					t.Errorf("%s, chunked %t: %d, %d bytes, %v, want %d or more", name, chunked, p.status, len(p.body), p.err, len(want))
				}
				if strings.Contains(p.body, engineHost) {
					t.Errorf("%s, chunked %t: the client sees params", name, chunked)
				}
				r.wantStored(n+1, row.stored)
			}
			if got := r.state(r.decode[0]); got != "up" {
				t.Errorf("%s: decode is %s, want up", name, got)
			}
			r.decode[0].always(decodes)
			r.wantOK(r.turn("another", 1, false), "miss;")
		}
	}
}

// The client reads the beginning of an unread answer before the engine has sent the rest, and learns that the engine has broken it off.
func TestUnread_WholeAnswersPassAsTheyCome(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, setup{cfg: func(c *server.Config) { c.MaxInflightBytes, c.MaxBodyBytes = 1<<20, 1000 }})
	r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer(l)+padding(3<<20))
		_ = http.NewResponseController(w).Flush()
		waits(gate, func(http.ResponseWriter, *http.Request, leg) { panic(http.ErrAbortHandler) })(w, q, l)
	})
	resp, err := r.open(context.Background(), http.MethodPost, chatPath, strings.NewReader(ask("c", false, "q")))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(resp.Body, make([]byte, 3<<20)); err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	close(gate)
	if p := r.rest(resp); p.err == nil {
		t.Error("what the engine has broken off ends in order")
	}
}

// The id of an unread answer is read: that of another request reaches no client.
func TestUnread_ForeignAnswersDoNotPass(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.MaxInflightBytes, c.MaxBodyBytes = 1<<20, 1000 }})
	r.wantOK(r.turn("c", 1, false), "miss;")
	r.decode[0].next(replyBody("application/json", `{"id":"chatcmpl-other"`+padding(3<<20)+"}"))
	if p := r.turn("d", 1, false); strings.Contains(p.body, "other") {
		t.Errorf("%d, %.100q", p.status, p.body)
	}
}

// padded are the events of an answer, of which the one with this name has so many bytes besides.
func padded(events []string, name string, n int) []string {
	for i, event := range events {
		if strings.HasPrefix(event, "event: "+name+"\n") {
			events[i] = strings.Replace(event, "data: {", "data: {"+padding(n)[1:]+",", 1)
		}
	}
	return events
}

// An event that repeats a large request is read; one beyond every bound passes without what clients must not see. Either way the stream ends in
// order, and nobody is to blame for it.
func TestUnread_EventsPass(t *testing.T) {
	for _, row := range []struct {
		api, event      string
		ask, bytes, mib int // bytes of the request and besides those of the event; memory in flight
		turns           int // six would open a circuit
	}{
		{"responses", "response.completed", 0, 7 << 20, 256, 1},
		{"responses", "response.completed", 0, 9 << 20, 256, 1},
		{"responses", "response.completed", 900 << 10, 14 << 20, 256, 1},
		{"responses", "response.completed", 0, 3 << 20, 1, 1},
		{"responses", "response.completed", 0, 9 << 20, 1, 1},
		{"responses", "response.output_text.delta", 0, 9 << 20, 256, 1},
		{"messages", "message_delta", 0, 2 << 20, 256, 6},
		{"messages", "message_stop", 0, 2 << 20, 256, 1},
		{"messages", "message_start", 900 << 10, 9 << 20, 256, 1},
	} {
		api := agentPaths()[row.api]
		r := newRig(t, setup{fleet: frozen, cfg: func(c *server.Config) { c.MaxInflightBytes = int64(row.mib) << 20 }})
		answer := func(l leg) []string { return padded(api.whole(l), row.event, row.bytes) }
		r.decode[0].always(says(false, answer))
		for n := range row.turns {
			p := r.sendTo(api.path, api.ask+padding(row.ask)+`,"stream":true}`, "X-Conversation-Id", "c")
			if p.status != http.StatusOK || p.err != nil {
				t.Fatalf("%+v: %d, %v", row, p.status, p.err)
			}
			want := hiddenOf(strings.Join(answer(r.decode[0].ofClients()[n]), ""))
			if row.event == "message_delta" { // which has no member of which null would be left otherwise
				want = strings.ReplaceAll(want, `{"stop_reason":"end_turn"}}`, `{"stop_reason":"end_turn"},"kv_transfer_params":null}`)
			}
			if p.body != want {
				t.Errorf("%+v: %d bytes, want %d: %.300q", row, len(p.body), len(want), p.body[len(p.body)-300:])
			}
		}
		if got := r.state(r.decode[0]); got != "up" {
			t.Errorf("%+v: decode is %s, want up", row, got)
		}
	}
}

// A stream that is cut behind a large event which is not the last has broken off.
func TestUnread_ALargeEventIsNotTheEnd(t *testing.T) {
	for name, event := range map[string]string{"responses": "response.output_text.delta", "messages": "content_block_delta"} {
		api := agentPaths()[name]
		r := newRig(t, setup{})
		r.decode[0].always(says(false, func(l leg) []string { return padded(append(api.opens(l), api.text), event, 9<<20) }))
		if p := r.sendTo(api.path, api.ask+`,"stream":true}`); p.err == nil || !strings.HasSuffix(p.body, "}\n\n") || !strings.Contains(p.body, "\nevent: error\n") {
			t.Errorf("%s: %v, ends in %.200q", name, p.err, p.body[len(p.body)-200:])
		}
	}
}

// Decode's blocks are released although nobody has read the answer that names them, even if its client has left.
func TestUnread_BlocksAreReleased(t *testing.T) {
	padsFinish := func(w http.ResponseWriter, _ *http.Request, l leg) {
		events := chatEvents(l)
		events[3] = strings.Replace(events[3], "{", "{"+padding(2 << 20)[1:]+",", 1)
		say(w, events...)
	}
	for name, row := range map[string]struct {
		act    behaviour
		stream bool
	}{"whole": {largeAnswer(3<<20, false), false}, "in chunks": {largeAnswer(3<<20, true), false}, "stream": {padsFinish, true}} {
		r := newRig(t, setup{cfg: func(c *server.Config) { releasing(c); c.MaxInflightBytes, c.MaxBodyBytes = 1<<20, 1000 }})
		r.decode[0].next(row.act)
		p := r.turn("c", 1, row.stream)
		if r.wantOK(p, "miss;"); strings.Contains(p.body, engineHost) {
			t.Errorf("%s: the client sees params", name)
		}
		if n := r.server.Unused(); n != 1 {
			t.Errorf("%s: the blocks of %d answers wait for their release, want one", name, n)
		}
	}
}
