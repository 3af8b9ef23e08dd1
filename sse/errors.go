package sse

import "errors"

// ErrStopped is what Run returns after a verdict of Stop.
var ErrStopped = errors.New("relay stopped by its observer")

// ErrOversize is returned by Run if Config.Bounded is set and an event is longer than Config.MaxEvent. The relay has written
// neither the event nor the bytes that it held back.
var ErrOversize = errors.New("event is longer than the bound")

// errNoEnd says that a stream has ended without an error but also without the end of its answer.
var errNoEnd = errors.New("the stream ends before the end of its answer")

// ReadError is a failure to read from the engine. Complete events that came before it have been written. The unfinished event
// and the held bytes have not; Stats.MidEvent tells the exception.
type ReadError struct{ Err error }

// Error says that reading failed, and how.
func (e *ReadError) Error() string { return "read stream: " + e.Err.Error() }

// Unwrap returns the reader's error.
func (e *ReadError) Unwrap() error { return e.Err }

// WriteError is a failure to write to the client or to flush. How much of the last write arrived is unknown.
type WriteError struct{ Err error }

// Error says that writing failed, and how.
func (e *WriteError) Error() string { return "write stream: " + e.Err.Error() }

// Unwrap returns the writer's or the flusher's error.
func (e *WriteError) Unwrap() error { return e.Err }

// AppendError appends one event whose data is errorJSON, in the shape of vLLM's own mid-stream errors
// (`data: {"error": ...}`), and returns the extended slice. Each line of errorJSON becomes a data line.
func AppendError(dst, errorJSON []byte) []byte {
	for {
		end := lineEnd(errorJSON)
		dst = append(dst, "data: "...)
		dst = append(dst, errorJSON[:end]...)
		dst = append(dst, '\n')
		errorJSON = afterLine(errorJSON, end)
		if len(errorJSON) == 0 {
			return append(dst, '\n')
		}
	}
}
