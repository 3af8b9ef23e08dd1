package apierror

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/queue"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Mapper maps failures to errors for clients.
type Mapper struct {
	Delay  func() time.Duration // how long turns have waited recently for a slot
	Hidden func() []string      // a new list of the hosts and addresses that no client may see
}

// Map alone decides what a client learns of a failure. Its result has no upstream hosts, addresses or Go error strings.
func (m *Mapper) Map(err error) *Error {
	var api *Error
	var leg *upstream.LegError
	var bad *body.BadRequestError
	var wrong *request.Error
	var unserved *pick.NoModelError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &bad):
		return BadRequest(bad.Param, bad.Code, bad.Message)
	case errors.As(err, &wrong):
		return fromRequest(wrong)
	case errors.Is(err, background.ErrShuttingDown), errors.Is(err, queue.ErrClosed):
		return Unavailable("server_shutting_down", "The server is shutting down.")
	case errors.Is(err, record.ErrClientGone), errors.Is(err, context.Canceled):
		return failure(record.StatusClientGone, "server_error", "client_gone", "The client closed the connection.")
	case errors.As(err, &unserved):
		return NoModel(unserved.Model)
	case errors.Is(err, pick.ErrNoPrefill):
		return Unavailable("prefill_unavailable", "No prefill engine is available.")
	case errors.Is(err, upstream.ErrNoInstance):
		return Unavailable("decode_unavailable", "No engine is available.")
	case errors.Is(err, queue.ErrFull):
		return m.crowded("queue_full", "Too many requests in flight.")
	case errors.Is(err, queue.ErrTimeout):
		return m.crowded("queue_timeout", "The request has waited for too long.")
	case errors.Is(err, queue.ErrTenant):
		return &Error{
			Status: http.StatusTooManyRequests, RetryAfter: "1", Message: "Too many requests of this client in flight.",
			Type: "rate_limit_error", Code: "tenant_limit",
		}
	case errors.As(err, &leg):
		return m.fromLeg(leg)
	}
	return failure(http.StatusInternalServerError, "server_error", "internal", "Internal error.")
}

func fromRequest(wrong *request.Error) *Error {
	if wrong.Status == http.StatusServiceUnavailable {
		return Unavailable(wrong.Code, wrong.Message)
	}
	e := BadRequest(wrong.Param, wrong.Code, wrong.Message)
	e.Status = wrong.Status
	return e
}

// maxRetryIn bounds Retry-After. A queue is empty long before.
const maxRetryIn = 30 * time.Second

// crowded refuses a request that gets no slot. Retry-After is about as long as turns have waited recently.
func (m *Mapper) crowded(code, message string) *Error {
	e := Unavailable(code, message)
	delay := min(m.Delay(), maxRetryIn)
	e.RetryAfter = strconv.Itoa(max(1, int(math.Ceil(delay.Seconds()))))
	return e
}

func (m *Mapper) fromLeg(leg *upstream.LegError) *Error {
	if errors.Is(leg.Err, upstream.ErrStreamTooLong) {
		return failure(http.StatusBadGateway, "upstream_error", "stream_limit", "The answer is longer than the limit.")
	}
	role := leg.Role.String()
	failed := failure(http.StatusBadGateway, "upstream_error", role+"_failed", "The "+role+" engine failed.")
	switch leg.Kind {
	case upstream.Dial:
		return Unavailable(role+"_unavailable", "No "+role+" engine is available.")
	case upstream.Timeout:
		code := role + "_timeout"
		if errors.Is(leg.Err, upstream.ErrIdleTimeout) {
			code = "stream_idle_timeout"
		}
		return failure(http.StatusGatewayTimeout, "upstream_error", code, "The "+role+" engine did not answer in time.")
	case upstream.Garbage:
		failed.Code = "bad_" + role + "_answer"
		return failed
	case upstream.Status:
		return m.fromStatus(leg, failed)
	}
	return failed
}

// fromStatus passes on an error that the client can correct. Every other status is a failure of the deployment.
func (m *Mapper) fromStatus(leg *upstream.LegError, failed *Error) *Error {
	switch leg.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		e := Refused(leg.Status, "invalid_request", m.redact(cmp.Or(leg.Message, "The engine refused the request.")))
		if leg.Type != "" {
			e.Type = m.redact(leg.Type)
		}
		if leg.Param != "" {
			e.Param = m.redact(leg.Param)
		}
		if leg.Status == http.StatusNotFound && leg.Param == "model" {
			e.Code = "model_not_found"
		}
		return e
	case http.StatusUnauthorized, http.StatusForbidden:
		if leg.Forwarded { // the client sent the key and can correct it, so it gets OpenAI's error; clients would retry a 502
			return Refused(leg.Status, "invalid_api_key", "The engines do not accept the API key of the request.")
		}
		failed.Code = "upstream_auth"
	case http.StatusTooManyRequests:
		return &Error{Status: leg.Status, RetryAfter: retryAfter(leg.RetryAfter), Message: "The engines are overloaded.", Type: "upstream_error", Code: "rate_limited"}
	case http.StatusServiceUnavailable:
		failed.Status, failed.RetryAfter = leg.Status, retryAfter(leg.RetryAfter)
	}
	return failed
}

// retryAfter accepts 0 to 300 seconds, else it returns "1".
func retryAfter(value string) string {
	if n, err := strconv.Atoi(value); err == nil && n >= 0 && n <= 300 {
		return value
	}
	return "1"
}

func (m *Mapper) redact(message string) string {
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return -1
		}
		return r
	}, message)
	names := m.Hidden()
	// The longest name is replaced first, because a host is the beginning of its authorities.
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		message = strings.ReplaceAll(message, name, "upstream")
	}
	return message
}
