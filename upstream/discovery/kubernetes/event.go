package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxEvent bounds one event of a watch. An object of the API server's store has 1.5 MiB at most (etcd's --max-request-bytes).
const maxEvent = 2 << 20

// Kinds of events (metav1.WatchEvent). An object that no longer matches the selector comes as deleted.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failed   = "ERROR"
)

// event is one of a watch: an object in its new state, or its last one, or just a version.
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

// Read hands the decoder no more than the event that it is at may have.
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
// breaks, and wraps errUnreadable if there is an event that is none.
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

// version is that of a bookmark.
func (e event) version() (string, error) {
	var mark struct {
		Metadata metadata `json:"metadata"`
	}
	if err := json.Unmarshal(e.Object, &mark); err != nil {
		return "", fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return mark.Metadata.ResourceVersion, nil
}

// refusal is what an ERROR event tells.
func (e event) refusal() *refusal {
	told := status{Message: "the event is no Status object"}
	if err := json.Unmarshal(e.Object, &told); err != nil {
		told = status{Message: "the event is no Status object"}
	}
	return told.refusal("watch")
}
