package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxEvent is the greatest size of a watch event. An object in the API server's store has 1.5 MiB at most (etcd's
// --max-request-bytes).
const maxEvent = 2 << 20

// Kinds of events (metav1.WatchEvent). An object that no longer matches the selector comes as deleted.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failed   = "ERROR"
)

// event is an event of a watch: an object in its new state, a deleted object in its last state, or just a version.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// events reads the JSON values of a watch one by one.
type events struct {
	source  io.Reader
	decoder *json.Decoder
	read    int64 // bytes that the decoder has got
}

func newEvents(source io.Reader) *events {
	e := &events{source: source}
	e.decoder = json.NewDecoder(e)
	return e
}

// Read hands the decoder at most as many bytes as the current event may still have.
func (e *events) Read(p []byte) (int, error) {
	left := e.decoder.InputOffset() + maxEvent - e.read
	if left <= 0 {
		return 0, fmt.Errorf("%w: more than 2 MiB", errUnreadable)
	}
	n, err := e.source.Read(p[:min(int64(len(p)), left)])
	e.read += int64(n)
	return n, err
}

// next returns the next event. The error is io.EOF at the end of the stream, io.ErrUnexpectedEOF or the connection's if the stream
// breaks, and wraps errUnreadable if the event can't be parsed.
func (e *events) next() (event, error) {
	var next event
	err := e.decoder.Decode(&next)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &kind) {
		return event{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return next, err
}

// version returns the version in a bookmark.
func (e event) version() (string, error) {
	var mark pod
	if err := json.Unmarshal(e.Object, &mark); err != nil {
		return "", fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return mark.Metadata.ResourceVersion, nil
}

// refusal returns the refusal in an ERROR event.
func (e event) refusal() *refusal {
	told := status{Message: "the event is no Status object"}
	if err := json.Unmarshal(e.Object, &told); err != nil {
		told = status{Message: "the event is no Status object"}
	}
	return told.refusal("watch")
}
