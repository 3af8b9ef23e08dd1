package server_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"carryover/upstream/vllmsim"
)

// knife stands in front of a simulated decode instance, and cuts its answers.
type knife struct {
	front *httptest.Server
	sim   *vllmsim.Instance

	mu   sync.Mutex // guards what follows
	next *cut       // of the next answer to a hand-over, nil for none
}

// cut is what becomes of one answer, and of the reading of it.
type cut struct {
	exit    string                     // "", or what happens behind the pieces: one of the exits below
	pieces  int                        // of the answer that are sent before, all if there are fewer; all but so many if it is negative
	part    int                        // bytes of the next one
	spoil   func(piece string) string  // what becomes of each piece
	sent    []string                   // what was sent of it, whole pieces
	whole   bool                       // it is no stream
	leave   func(seen <-chan struct{}) // ends when the client has left
	written chan struct{}              // closed when sent is known
}

// How the reading of an answer ends.
const (
	exitEnds   = "the stream ends in order"
	exitBreaks = "it breaks"
	exitError  = "an error event"
	exitLeaves = "the client leaves"
)

// synced is what a client sees when the server has read all before it.
const synced = ": synced\n\n"

func newKnife(t *testing.T, sim *vllmsim.Instance) *knife {
	t.Helper()
	to, err := url.Parse(sim.URL())
	if err != nil {
		t.Fatal(err)
	}
	k := &knife{sim: sim}
	through := httputil.NewSingleHostReverseProxy(to)
	k.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		k.mu.Lock()
		c := k.next
		if c != nil && bytes.Contains(body, []byte(`"do_remote_prefill":true`)) && !(leg{header: r.Header}).rescues() {
			k.next = nil
		} else {
			c = nil
		}
		k.mu.Unlock()
		if c == nil {
			through.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder() // all of it, so that the engine has finished
		through.ServeHTTP(answer, r)
		c.serve(w, r, answer)
	}))
	t.Cleanup(k.front.Close)
	return k
}

// cuts has the next answer to a hand-over cut, but not that of a rescue.
func (k *knife) cuts(c *cut) {
	c.written = make(chan struct{})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = c
}

// serve sends what is left of an answer.
func (c *cut) serve(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder) {
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	pieces := strings.SplitAfter(answer.Body.String(), "\n\n")
	if c.whole {
		pieces = []string{answer.Body.String()}
	}
	if last := len(pieces) - 1; pieces[last] == "" {
		pieces = pieces[:last]
	}
	flush := func(text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	n := len(pieces)
	if c.exit != "" {
		if n = min(n, c.pieces); c.pieces < 0 {
			n = len(pieces) + c.pieces
		}
	}
	for _, piece := range pieces[:n] {
		if c.spoil != nil {
			piece = c.spoil(piece)
		}
		if piece != "" && !c.whole {
			flush(piece)
		}
		c.sent = append(c.sent, piece)
	}
	if c.whole {
		c.wholly(flush, r)
		return
	}
	close(c.written)
	rest := ""
	if n < len(pieces) {
		rest = pieces[n][:min(c.part, len(pieces[n])-2)]
	}
	switch c.exit {
	case exitEnds:
		flush(rest)
	case exitBreaks:
		flush(rest)
		panic(http.ErrAbortHandler)
	case exitError:
		if strings.Contains(answer.Body.String(), "event: ") {
			flush("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"x\"}}\n\n")
		} else {
			flush(frames(`{"error":{"message":"x","type":"y","code":500}}`, "[DONE]"))
		}
	case exitLeaves:
		flush(synced + rest)
		<-r.Context().Done()
	}
}

// wholly sends an answer that is no stream. A client that leaves does so while half of it is there.
func (c *cut) wholly(flush func(string), r *http.Request) {
	answer := strings.Join(c.sent, "")
	close(c.written)
	flush(answer[:len(answer)/2])
	switch c.exit {
	case exitBreaks:
		panic(http.ErrAbortHandler)
	case exitLeaves:
		c.leave(r.Context().Done())
	}
	flush(answer[len(answer)/2:])
}

// What of an answer the oracle looks for. It knows nothing of JSON.
var (
	usageMember = regexp.MustCompile(`"usage":\{[^{}]*(\{[^{}]*\}[^{}]*)*\}`)
	answerName  = regexp.MustCompile(`"id":"(chatcmpl|cmpl|resp)[^"]*"`)
	finishes    = regexp.MustCompile(`"finish_reason":"|"type":"message_delta"|"type":"response\.(completed|incomplete)"`)
	ends        = regexp.MustCompile(`^data: \[DONE\]|"type":"message_delta"|"type":"response\.(completed|incomplete)"`)
)

// withoutUsage takes the usage of the whole answer out of a piece: of events of completions that have no choice, which go, or the last.
func withoutUsage(piece string) string {
	switch {
	case strings.Contains(piece, `"choices":[]`):
		return ""
	case finishes.MatchString(piece):
		return usageMember.ReplaceAllString(piece, `"usage":null`)
	}
	return piece
}

// withoutID takes the names of answers out of a piece.
func withoutID(piece string) string { return answerName.ReplaceAllString(piece, `"id":null`) }

// expects is what the oracle says that becomes of an answer of which this was sent: "yes", or why it leaves no ticket; and whether its
// blocks were named.
func (c *cut) expects() (stored string, named bool) {
	var finish, counted, end, id bool
	for _, piece := range c.sent {
		finish = finish || finishes.MatchString(piece)
		final := finishes.MatchString(piece) || strings.Contains(piece, `"choices":[]`) || c.whole
		counted = counted || final && usageMember.MatchString(piece)
		named = named || strings.Contains(piece, `"kv_transfer_params":{`)
		id = id || answerName.MatchString(piece)
		end = end || ends.MatchString(piece) || c.whole
	}
	switch {
	case !end && (c.exit != exitLeaves || !finish || !named):
		return "incomplete", named
	case !id:
		return "ineligible_response_id", named
	case !counted:
		return "uncounted", named
	}
	return "yes", named
}
