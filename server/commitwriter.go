package server

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// commitWriter is the client's side of an answer. The first write commits.
type commitWriter struct {
	turn    *turn
	w       http.ResponseWriter
	flusher interface{ FlushError() error } // w, found once: the controller looks for it with each call
	limit   time.Duration                   // of one write
	bounded time.Time                       // when the limit was last set
	errors  func(err error) *apiError       // how an error looks to a client
	early   bool                            // decode has yet to be asked, for which the request is needed
}

// newCommitWriter returns the outlet of a turn. The first deadline of its writes was set when the request came in (Server.exact).
func newCommitWriter(t *turn, w http.ResponseWriter, limit time.Duration, errors func(err error) *apiError) *commitWriter {
	o := &commitWriter{turn: t, w: w, limit: limit, bounded: t.record.Began, errors: errors}
	if flusher, ok := w.(interface{ FlushError() error }); ok {
		o.flusher = flusher
	} else {
		o.flusher = controlled{http.NewResponseController(w)}
	}
	return o
}

// controlled is a writer whose Flush is found by the controller.
type controlled struct{ *http.ResponseController }

// FlushError does what Flush does.
func (c controlled) FlushError() error { return c.Flush() }

// head sends the first of an answer before decode is asked.
func (o *commitWriter) head(p []byte) error {
	o.early = true
	defer func() { o.early = false }()
	if _, err := o.Write(p); err != nil {
		return errClientGone
	}
	if err := o.Flush(); err != nil {
		return errClientGone
	}
	return nil
}

// eventStream is the media type of the streams that are made here.
const eventStream = "text/event-stream; charset=utf-8"

// announce sets the headers of an answer that is sent whole.
func (o *commitWriter) announce(mediaType string, length int) {
	o.w.Header().Set("Content-Type", mediaType)
	o.w.Header().Set("Content-Length", strconv.Itoa(length))
}

// announceStream sets the headers of an event stream, unless they are sent.
func (o *commitWriter) announceStream(contentType string) {
	header, values := o.w.Header(), []string{contentType, "no-cache", "no"} // one list for three
	header["Content-Type"], header["Cache-Control"], header["X-Accel-Buffering"] = values[0:1:1], values[1:2:2], values[2:3:3]
}

// commit sends status and headers: from here on nothing can be tried again.
func (o *commitWriter) commit() {
	t := o.turn
	t.committed = true
	if !o.early {
		t.dropBody()
	}
	t.record.Status = http.StatusOK
	t.record.TTFT = time.Since(t.record.Began)
	turnHeaders(o.w.Header(), &t.record)
	o.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer. Each write is bounded: a client that does not read must not
// hold an engine, and a stream may last for hours.
func (o *commitWriter) Write(p []byte) (int, error) {
	if !o.turn.committed {
		o.commit()
	}
	if err := o.bound(); err != nil {
		return 0, err
	}
	return o.w.Write(p)
}

// slack is the part of the limit, one in so many, by which a write may last longer.
const slack = 4

// bound sets the deadline of the writes that follow: each may last as long as the limit, and
// a quarter of it longer at most. That a deadline serves all writes within this quarter
// saves a chunk the change of a timer, which is a twentieth of its cost.
func (o *commitWriter) bound() error {
	now := time.Now()
	if !o.bounded.IsZero() && now.Sub(o.bounded) < o.limit/slack {
		return nil
	}
	o.bounded = now
	return http.NewResponseController(o.w).SetWriteDeadline(now.Add(writeLimit(o.limit)))
}

// writeLimit is how far ahead deadlines of writes are set.
func writeLimit(limit time.Duration) time.Duration { return limit + limit/slack }

// Flush sends what was written.
func (o *commitWriter) Flush() error { return o.flusher.FlushError() }

// lastWords tells the client of a stream what broke it, behind so many events. No [DONE] follows, and the
// connection is aborted, so that no client takes the answer for complete.
func (o *commitWriter) lastWords(err error, events int64) {
	known := o.errors(err)
	o.turn.record.Code = known.Code
	if _, err := o.Write(known.event(o.turn.api, events)); err == nil {
		_ = o.Flush()
	}
}

var _ io.Writer = (*commitWriter)(nil)
