package turn

import (
	"net/http"
	"strconv"
	"time"

	"carryover/server/apierror"
	"carryover/server/record"
	"carryover/upstream/body"
)

// commitWriter writes an answer to the client. The first write commits the turn: status and headers are sent.
type commitWriter struct {
	w       http.ResponseWriter
	flusher interface{ FlushError() error } // w, found once: the controller looks for it with each call
	limit   time.Duration                   // of one write
	bounded time.Time                       // when the limit was last set
	errors  *apierror.Mapper                // turns an error into the one that clients see
	whole   bool                            // the first write has all of the answer

	api       body.API
	record    *record.Builder
	committed bool // status and headers have reached the client, and so does the answer's beginning
	heart     heart
}

// newCommitWriter returns the commitWriter of a turn. Server.exact has set the first deadline of its writes when the request came in.
func newCommitWriter(
	w http.ResponseWriter, limit time.Duration, errors *apierror.Mapper, api body.API, record *record.Builder,
) *commitWriter {
	o := &commitWriter{w: w, limit: limit, bounded: record.Times().Began, errors: errors, api: api, record: record}
	if flusher, ok := w.(interface{ FlushError() error }); ok {
		o.flusher = flusher
	} else {
		o.flusher = controlled{http.NewResponseController(w)}
	}
	return o
}

// controlled is a writer without FlushError. The ResponseController finds its Flush.
type controlled struct{ *http.ResponseController }

// FlushError does what Flush does.
func (c controlled) FlushError() error { return c.Flush() }

// announce sets the headers of an answer that is sent whole. length is negative if it is not known.
func (c *commitWriter) announce(mediaType string, length int) {
	c.whole = true
	c.w.Header().Set("Content-Type", mediaType)
	if length >= 0 {
		c.w.Header().Set("Content-Length", strconv.Itoa(length))
	}
}

// announceStream sets the headers of an event stream, unless they are sent.
func (c *commitWriter) announceStream(contentType string) {
	c.heart.mu.Lock()
	defer c.heart.mu.Unlock()
	if !c.heart.beaten {
		c.streamHeaders(contentType)
	}
}

// streamHeaders sets the headers of an event stream.
func (c *commitWriter) streamHeaders(contentType string) {
	header, values := c.w.Header(), []string{contentType, "no-cache", "no"} // one list for three
	header["Content-Type"], header["Cache-Control"], header["X-Accel-Buffering"] = values[0:1:1], values[1:2:2], values[2:3:3]
}

// commit sends status and headers. From now on the turn can't be tried again.
func (c *commitWriter) commit() {
	c.committed = true
	beaten := c.heart.stop()
	c.record.Committed(c.w.Header(), c.whole)
	if !beaten {
		c.w.WriteHeader(http.StatusOK)
	}
}

// Write implements io.Writer. Each write has a time limit, because a client that does not read must not hold an engine. The stream as a whole
// has none: it may last for hours.
func (c *commitWriter) Write(p []byte) (int, error) {
	if !c.committed {
		c.commit()
	}
	if err := c.bound(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// slack is the divisor of the limit that gives the time by which a write may exceed it.
const slack = 4

// bound sets the deadline of the writes that follow. Each may last as long as the limit, and at most a quarter longer. All writes within
// this quarter share a deadline, because changing the timer costs a twentieth of the work for a chunk.
func (c *commitWriter) bound() error {
	now := time.Now()
	if !c.bounded.IsZero() && now.Sub(c.bounded) < c.limit/slack {
		return nil
	}
	c.bounded = now
	return http.NewResponseController(c.w).SetWriteDeadline(now.Add(WriteLimit(c.limit)))
}

// WriteLimit returns how far ahead the deadlines of writes are set.
func WriteLimit(limit time.Duration) time.Duration { return limit + limit/slack }

// Flush sends what was written.
func (c *commitWriter) Flush() error { return c.flusher.FlushError() }

// lastWords sends the client of a stream an error event that says what broke the stream, behind so many events. No [DONE] follows, and the
// connection is aborted, so that no client takes the answer for a complete one.
func (c *commitWriter) lastWords(err error, events int64) {
	if _, err := c.Write(c.errors.Map(err).Event(c.api, events)); err == nil {
		_ = c.Flush()
	}
}
