package turn

import (
	"net/http"
	"sync"
	"time"

	"carryover/upstream/body"
)

// heart sends a client that waits for a stream a beat every so often until the answer begins, because balancers and clients end a connection
// on which nothing comes. It takes turns with the turn's own goroutine: what stops it waits for a beat that is being written.
type heart struct {
	mu    sync.Mutex
	timer *time.Timer // nil for a heart that never beats
	beaten,
	stopped bool
}

// beat begins the beats. The first one, after the interval, sends status 200 and the headers of a stream. From then on an error comes as an
// event, and the turn can still be tried again.
func (c *commitWriter) beat(interval time.Duration) {
	h := &c.heart
	h.mu.Lock() // the timer's goroutine reads it
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(interval, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.stopped {
			return
		}
		if !h.beaten {
			h.beaten = true
			c.streamHeaders("text/event-stream; charset=utf-8")
			c.w.WriteHeader(http.StatusOK)
		}
		if c.bound() != nil {
			return
		}
		if _, err := c.w.Write(beatOf(c.api)); err == nil && c.Flush() == nil {
			h.timer.Reset(interval)
		}
	})
}

// beatOf returns what stands for nothing in a stream of an API: a ping as Anthropic's own streams have it, or a comment (WHATWG HTML 9.2.6).
func beatOf(api body.API) []byte {
	if api == body.Messages {
		return []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n")
	}
	return []byte(": heartbeat\n\n")
}

// stop ends the beats, and reports whether one has sent status and headers.
func (h *heart) stop() (beaten bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped = true; h.timer != nil {
		h.timer.Stop()
	}
	return h.beaten
}
