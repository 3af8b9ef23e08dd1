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
	forget    func() // frees the request, which no attempt needs any more
	committed bool   // status and headers have reached the client
}

// newCommitWriter returns the commitWriter of a turn. Server.exact has set the first deadline of its writes when the request came in.
func newCommitWriter(
	w http.ResponseWriter, limit time.Duration, errors *apierror.Mapper, api body.API, record *record.Builder, forget func(),
) *commitWriter {
	o := &commitWriter{w: w, limit: limit, bounded: record.Times().Began, errors: errors, api: api, record: record, forget: forget}
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

// announce sets the headers of an answer that is sent whole.
func (o *commitWriter) announce(mediaType string, length int) {
	o.whole = true
	o.w.Header().Set("Content-Type", mediaType)
	o.w.Header().Set("Content-Length", strconv.Itoa(length))
}

// announceStream sets the headers of an event stream, unless they are sent.
func (o *commitWriter) announceStream(contentType string) {
	header, values := o.w.Header(), []string{contentType, "no-cache", "no"} // one list for three
	header["Content-Type"], header["Cache-Control"], header["X-Accel-Buffering"] = values[0:1:1], values[1:2:2], values[2:3:3]
}

// commit sends status and headers. From now on the turn can't be tried again.
func (o *commitWriter) commit() {
	o.committed = true
	o.forget()
	o.record.Committed(o.w.Header(), o.whole)
	o.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer. Each write has a time limit, because a client that does not read must not hold an engine. The stream as a whole
// has none: it may last for hours.
func (o *commitWriter) Write(p []byte) (int, error) {
	if !o.committed {
		o.commit()
	}
	if err := o.bound(); err != nil {
		return 0, err
	}
	return o.w.Write(p)
}

// slack is the divisor of the limit that gives the time by which a write may exceed it.
const slack = 4

// bound sets the deadline of the writes that follow. Each may last as long as the limit, and at most a quarter longer. All writes within
// this quarter share a deadline, because changing the timer costs a twentieth of the work for a chunk.
func (o *commitWriter) bound() error {
	now := time.Now()
	if !o.bounded.IsZero() && now.Sub(o.bounded) < o.limit/slack {
		return nil
	}
	o.bounded = now
	return http.NewResponseController(o.w).SetWriteDeadline(now.Add(WriteLimit(o.limit)))
}

// WriteLimit returns how far ahead the deadlines of writes are set.
func WriteLimit(limit time.Duration) time.Duration { return limit + limit/slack }

// Flush sends what was written.
func (o *commitWriter) Flush() error { return o.flusher.FlushError() }

// lastWords sends the client of a stream an error event that says what broke the stream, behind so many events. No [DONE] follows, and the
// connection is aborted, so that no client takes the answer for a complete one.
func (o *commitWriter) lastWords(err error, events int64) {
	known := o.errors.Map(err)
	o.record.Broke(known.Code)
	if _, err := o.Write(known.Event(o.api, events)); err == nil {
		_ = o.Flush()
	}
}
