package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"carryover/sse/rawjson"
)

// ErrNoInstance says that a role has no instance left, or none configured.
var ErrNoInstance = errors.New("no instance")

// ErrNoModel says that no instance of a role serves the model of a turn.
var ErrNoModel = errors.New("no instance serves the model")

// ErrBusy says that each candidate has as many attempts in flight as it may.
var ErrBusy = errors.New("every instance is busy")

// This package ends a leg or an answer with these errors; errors.Is finds them in a [LegError].
var (
	ErrPrefillTimeout   = errors.New("prefill time limit")
	ErrFirstByteTimeout = errors.New("no first byte within the time limit")
	ErrAnswerTimeout    = errors.New("no whole answer within the time limit")
	ErrIdleTimeout      = errors.New("stream idle for longer than the time limit")
	ErrReuseTimeout     = errors.New("no answer to a ticket within the time limit")
	ErrTicketEnded      = errors.New("no answer to a ticket before decode may free its blocks")
	ErrNotReady         = errors.New("the KV has not arrived within the time limit")
	ErrAnswerTooLarge   = errors.New("answer larger than the limit")
	ErrStreamTooLong    = errors.New("stream longer than the limit")
)

// ErrForeign says that an answer belongs to another request, as on a connection that is out of step. No client may get it.
var ErrForeign = errors.New("the answer belongs to another request")

// Kind says how a leg failed.
type Kind int

// A leg fails in these ways.
const (
	Dial    Kind = iota + 1 // no connection; nothing was sent
	Timeout                 // one of our own time limits ended the leg
	Broken                  // the connection ended early, or the answer's framing is wrong
	Status                  // the engine answered with a status other than 200
	Garbage                 // status 200 with a body that the API does not allow
	KVLoad                  // decode accepted the request and could not load the KV
	Gone                    // the client left, or this process is shutting down
	IDEcho                  // prefill did not compute the ids that it was sent
)

func (k Kind) String() string {
	names := [...]string{"", "dial", "timeout", "broken", "status", "garbage", "kv_load", "gone", "id_echo"}
	if k < Dial || int(k) >= len(names) {
		return fmt.Sprintf("kind(%d)", int(k))
	}
	return names[k]
}

// LegError is the failure of one leg. Callers branch on Kind, Status and Sent.
type LegError struct {
	Role     Role
	Instance string // for logs; never shown to a client
	Kind     Kind
	// Sent is false only if certainly no byte of the request has reached an engine.
	Sent bool
	// Forwarded says that the client's credential was sent, not ours.
	Forwarded bool
	// Status, the engine's error body and its Retry-After, for Kind Status.
	Status int
	Fault
	RetryAfter string
	Err        error
}

func (e *LegError) Error() string {
	s := fmt.Sprintf("%s on %s: %s", e.Role, e.Instance, e.Kind)
	if e.Status != 0 {
		s += fmt.Sprintf(" %d", e.Status)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *LegError) Unwrap() error { return e.Err }

// LegOf returns the failure of a leg that is in an error, nil if there is none.
func LegOf(err error) *LegError {
	leg, _ := errors.AsType[*LegError](err)
	return leg
}

// Retryable reports whether a new leg, with a new request id and without earlier KV, may succeed: the connection broke, the engine was
// overloaded or restarting, or it could not load KV. vLLM answers 500 both to a stale ticket and to a failed KV load
// (kv_load_failure_policy "fail").
func (e *LegError) Retryable() bool {
	switch e.Kind {
	case Dial, Broken, KVLoad, IDEcho:
		return true
	case Timeout:
		return isOneOf(e.Err, ErrReuseTimeout, ErrTicketEnded)
	case Status:
		return e.Status == 500 || e.Status == 502 || e.Status == 503 || e.Status == 504
	}
	return false
}

// Refused reports whether the engine refused the credential.
func (e *LegError) Refused() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// IsTimeout reports whether err is one of this package's time limits.
func IsTimeout(err error) bool {
	return isOneOf(err, ErrPrefillTimeout, ErrFirstByteTimeout, ErrAnswerTimeout, ErrIdleTimeout, ErrReuseTimeout, ErrTicketEnded, ErrNotReady)
}

// KindOf returns how a leg has failed whose answer could not be read to its end.
func KindOf(err error) Kind {
	switch {
	case IsTimeout(err):
		return Timeout
	case errors.Is(err, ErrAnswerTooLarge):
		return Garbage
	}
	return Broken
}

func isOneOf(err error, all ...error) bool {
	return slices.ContainsFunc(all, func(one error) bool { return errors.Is(err, one) })
}

const maxErrorMessage = 2 << 10

// Fault is an engine's error body; absent members are "".
type Fault struct {
	// Message has at most 2 KiB. It is for logs, and for a client only if the client can correct the fault.
	Message string
	Type    string // vLLM's name of the kind of error, e.g. "NotFoundError"
	Param   string // the member of the request at fault
}

// ReadFault reads vLLM's error body, {"error":{"message","type","param","code"}}, the older flat form, or a string. An unreadable body is
// the zero Fault.
func ReadFault(body []byte) (f Fault) {
	if !rawjson.Valid(body) {
		return Fault{}
	}
	detail := rawjson.Get(body, "error")
	if detail == nil {
		detail = bytes.TrimSpace(body)
	}
	if rawjson.Kind(detail) == '"' {
		f.Message = rawjson.GetText(detail)
	} else {
		f.Message = rawjson.GetText(detail, "message")
		f.Type = rawjson.GetText(detail, "type")
		f.Param = rawjson.GetText(detail, "param")
	}
	if len(f.Message) > maxErrorMessage {
		f.Message = f.Message[:maxErrorMessage]
	}
	return f
}

// pausedWords is how vLLM 0.33 begins its refusals while it is paused (v1/engine/core.py).
const pausedWords = "Generation is paused"

// Paused reports whether the engine refused the request because it is paused (POST /pause), before it scheduled anything: by a 503, or by
// the first event of a stream. A 503 with other words may come from something in front of the engine. Measured on a real pair of 0.33:
// decode makes prefill free the blocks of a hand-over, so the hand-over is spent. Decode's blocks of a ticket stay pinned, and nobody
// reads them.
func (e *LegError) Paused() bool {
	return e.Kind == Status && strings.HasPrefix(e.Message, pausedWords)
}

// PausedError is the error of a leg that is not sent because the instance is paused.
func PausedError(at *Instance) *LegError {
	return &LegError{Role: at.Role, Instance: at.Name, Kind: Status, Status: http.StatusServiceUnavailable, Fault: Fault{Message: pausedWords}}
}

// IsPaused asks an instance whether it is paused, by GET /is_paused, which vLLM has wherever it has /pause (VLLM_SERVER_DEV_MODE). told
// is false if it does not say.
func (c *Client) IsPaused(ctx context.Context, at *Instance) (paused, told bool) {
	status, text, err := c.Fetch(ctx, at, "/is_paused", "", 4<<10)
	if err != nil || status != http.StatusOK || !rawjson.Valid(text) {
		return false, false
	}
	word := string(rawjson.Get(text, "is_paused"))
	return word == "true", word == "true" || word == "false"
}

// Internal reports whether the engine answered 500, as vLLM does to whatever its handlers did not expect.
func (e *LegError) Internal() bool { return e.Status == http.StatusInternalServerError }

// AtFault reports whether the engine is to blame for the failure. It is not to blame for
//
//   - what it refuses, 429 too, or does not offer (501);
//   - the end of a leg that the client, a quarantine or the other leg has ended;
//   - the length of an answer, which the client decides.
func (e *LegError) AtFault() bool {
	switch {
	case e.Paused(), errors.Is(e.Err, ErrStreamTooLong): // an operator has paused it
		return false
	case e.Role == RoleDecode && isOneOf(e.Err, ErrAnswerTooLarge, ErrAnswerTimeout):
		return false
	case e.Kind == Timeout:
		return LegOf(e.Err) == nil // else the other leg's failure has ended this one
	case e.Kind == Status:
		return e.Status >= http.StatusInternalServerError && e.Status != http.StatusNotImplemented
	}
	return e.Kind == Broken || e.Kind == Garbage || e.Kind == KVLoad
}
