package turn

import (
	"cmp"
	"net/http"
	"sync"
	"time"

	"carryover/server/record"
	"carryover/upstream/body"
)

// commitWriter writes an answer to the client. The first write commits the turn: status and headers are sent.
//
// Until then it can send beats at an interval to a client that waits for a stream, because balancers and clients end a silent connection. Beats and
// the turn's goroutine take turns: stop waits for a beat that is being written.
type commitWriter struct {
	w       http.ResponseWriter
	limit   time.Duration // of one write
	bounded time.Time     // when the limit was last set
	stream  string        // its Content-Type, "" for an answer in one piece

	record    *record.Builder
	committed bool // status and headers are sent, and the answer's beginning follows them

	mu     sync.Mutex  // guards what follows
	timer  *time.Timer // of the next beat, nil if none follows
	beaten bool        // a beat has sent status and headers
}

// beat begins the beats. The first one, after the interval, sends status 200 and the headers of a stream. From then on an error is sent as an
// event, and the turn can still be tried again. A beat means nothing in a stream of the API: it is a ping as in Anthropic's own streams, or a
// comment (WHATWG HTML 9.2.6).
func (c *commitWriter) beat(api body.API, interval time.Duration) {
	beat := ": heartbeat\n\n"
	if api == body.Messages {
		beat = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	}
	c.mu.Lock() // the timer's goroutine reads c.timer
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(interval, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer == nil {
			return
		}
		if !c.beaten {
			c.beaten = true
			c.announce("text/event-stream; charset=utf-8")
			c.w.WriteHeader(http.StatusOK)
		}
		if c.bound() != nil {
			return
		}
		_, _ = c.w.Write([]byte(beat))
		if c.Flush() == nil { // else the write has failed, too
			c.timer.Reset(interval)
		}
	})
}

// stop ends the beats. beaten says that one has sent status and headers.
func (c *commitWriter) stop() (beaten bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	return c.beaten
}

// announce sets the headers of an event stream, or of JSON. It has no effect once they are sent.
func (c *commitWriter) announce(stream string) {
	header := c.w.Header()
	header.Set("Content-Type", cmp.Or(stream, "application/json"))
	if stream != "" {
		header.Set("Cache-Control", "no-cache")
		header.Set("X-Accel-Buffering", "no")
	}
}

// commit sends status and headers, once. From now on the turn can't be tried again.
func (c *commitWriter) commit() {
	if c.committed {
		return
	}
	c.committed = true
	beaten := c.stop()
	c.announce(c.stream)
	c.record.Committed(c.w.Header(), c.stream == "" && !beaten)
	if !beaten {
		c.w.WriteHeader(http.StatusOK)
	}
}

// Write implements io.Writer. Each write has a time limit, because a client that does not read must not hold an engine. The whole stream has no
// limit: it may last for hours.
func (c *commitWriter) Write(p []byte) (int, error) {
	c.commit()
	if err := c.bound(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// slack bounds how much longer than its limit a write may take: by limit/slack.
const slack = 4

// bound sets the deadline of the next writes. Each may take as long as the limit, and a quarter longer at most. All writes within this quarter
// share a deadline, because changing the timer costs a twentieth of the work for a chunk.
func (c *commitWriter) bound() error {
	now := time.Now()
	if now.Sub(c.bounded) < c.limit/slack {
		return nil
	}
	c.bounded = now
	return http.NewResponseController(c.w).SetWriteDeadline(now.Add(WriteLimit(c.limit)))
}

// WriteLimit returns how far ahead the deadlines of writes are set.
func WriteLimit(limit time.Duration) time.Duration { return limit + limit/slack }

// end sends an error event that says what broke the stream. No [DONE] follows, and the connection is aborted, so that no client takes the answer for
// a complete one.
func (c *commitWriter) end(event []byte) {
	_, _ = c.Write(event)
	_ = c.Flush() // if one fails, the client has gone
}

func (c *commitWriter) Flush() error { return http.NewResponseController(c.w).Flush() }
