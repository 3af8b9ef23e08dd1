package wire

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
)

// FaultWriter applies a fault to the bytes written to a client. Each Write to a stream is one event.
type FaultWriter struct {
	http.ResponseWriter
	fault  *fault.Active
	clock  *engine.Clock
	req    *http.Request
	events int
	params []byte // the event that contained kv_transfer_params
}

// NewFaultWriter applies f to the answer of req. Delays run on the engine's clock.
func NewFaultWriter(w http.ResponseWriter, f *fault.Active, clock *engine.Clock, req *http.Request) *FaultWriter {
	return &FaultWriter{ResponseWriter: w, fault: f, clock: clock, req: req}
}

// Unwrap lets http.ResponseController flush and hijack.
func (w *FaultWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the headers. One fault makes the content type wrong.
func (w *FaultWriter) WriteHeader(status int) {
	if w.fault.Is(fault.WrongContentType) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes one event of a stream, or a body that mangle has already changed.
func (w *FaultWriter) Write(event []byte) (n int, err error) {
	if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		return w.ResponseWriter.Write(event)
	}
	first, last := w.events == 0, endsStream(event)
	defer func() { w.events++ }()
	if w.fault.Comments || w.fault.Is(fault.Comments) {
		defer func(written []byte) { n = min(n, len(written)) }(event)
		event = commented(event, first, last)
	}
	switch w.fault.Kind {
	case fault.DoubleDone:
		if last {
			event = slices.Concat(event, event)
		}
	case fault.EventAfterDone:
		if bytes.Contains(event, []byte(`"kv_transfer_params":{`)) {
			w.params = bytes.Clone(event)
		}
		if last {
			event = slices.Concat(event, w.params, event)
		}
	case fault.SplitUsage:
		event = bytes.Replace(event, []byte(`,"usage":{`), []byte(",\ndata: \"usage\":{"), 1)
	case fault.SlowStream:
		if w.clock.Wait(w.req.Context(), w.fault.Delay) != nil {
			return 0, ErrConnectionGone
		}
	case fault.DieBeforeFirstEvent:
		return 0, ErrConnectionGone
	case fault.DieMidEvent:
		if w.events == w.fault.Events {
			// Errors do not matter: the connection is closed next.
			_, _ = w.ResponseWriter.Write(event[:len(event)/2])
			_ = http.NewResponseController(w.ResponseWriter).Flush()
			return 0, ErrConnectionGone
		}
	case fault.EndWithoutDone:
		if last || w.fault.Events > 0 && w.events >= w.fault.Events {
			return len(event), nil
		}
	case fault.NeverEnd:
		if last {
			<-w.req.Context().Done()
			return 0, ErrConnectionGone
		}
	case fault.GarbageJSON, fault.TruncatedJSON:
		if w.events == w.fault.Events && !last {
			event = slices.Concat(w.mangle(bytes.TrimRight(event, "\n")), []byte("\n\n"))
		}
	}
	return w.ResponseWriter.Write(event)
}

// commented puts comments and blank lines around an event.
func commented(event []byte, first, last bool) []byte {
	switch {
	case first:
		return slices.Concat([]byte(": ping\n\n\n: ping\r\n\r\nretry: 3000\n\n"), event, []byte(": ping\n\n"))
	case last:
		return slices.Concat([]byte("\n: ping\n"), event)
	default:
		return event
	}
}

// endsStream reports whether an event is the last one of a stream: chat's [DONE], or the last named event.
func endsStream(event []byte) bool {
	for _, start := range [...]string{"data: [DONE]", "event: message_stop\n", "event: response.completed\n", "event: response.incomplete\n"} {
		if bytes.HasPrefix(event, []byte(start)) {
			return true
		}
	}
	return false
}

// mangle damages a body or the data of an event. An event keeps its name.
func (w *FaultWriter) mangle(data []byte) []byte {
	begin := 0
	if at := bytes.Index(data, []byte("data: ")); at == 0 || at > 0 && bytes.HasPrefix(data, []byte("event: ")) {
		begin = at + len("data: ")
	}
	switch w.fault.Kind {
	case fault.TruncatedJSON:
		return data[:begin+(len(data)-begin)/2]
	case fault.GarbageJSON:
		return slices.Concat(data[:begin], []byte("{\"id\":}}garbage"))
	default:
		return data
	}
}

// Kill closes the connection of a request without ending its answer.
func Kill(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = buffered.Flush() // the peer may be gone already
	_ = conn.Close()     // intended
}
