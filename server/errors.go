package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"carryover/server/pick"
	"carryover/server/queue"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
)

// errShuttingDown is the cause with which the server ends the context of its turns.
var errShuttingDown = errors.New("server shutting down")

// apiError is an error in the form that clients see: OpenAI's error object and a status.
type apiError struct {
	Status     int    `json:"-"`
	RetryAfter string `json:"-"`
	Message    string `json:"message"`
	Type       string `json:"type"`
	Param      any    `json:"param"` // string or null
	Code       string `json:"code"`
}

// Error returns the message.
func (e *apiError) Error() string { return e.Message }

// body returns the JSON that clients get, {"error":{…}}.
func (e *apiError) body() []byte {
	b, err := json.Marshal(map[string]*apiError{"error": e})
	if err != nil { // can't happen: there are only strings in it
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal"}}`)
	}
	return b
}

func badRequest(param, code, message string) *apiError {
	e := &apiError{Status: http.StatusBadRequest, Message: message, Type: "invalid_request_error", Code: code}
	if param != "" {
		e.Param = param
	}
	return e
}

func refused(status int, code, message string) *apiError {
	return &apiError{Status: status, Message: message, Type: "invalid_request_error", Code: code}
}

func unavailable(code, message string) *apiError {
	return &apiError{Status: http.StatusServiceUnavailable, RetryAfter: "1", Message: message, Type: "server_error", Code: code}
}

// toAPIError alone decides what a client learns of a failure. Its result has no upstream hosts, addresses or Go error strings.
func (s *Server) toAPIError(err error) *apiError {
	var api *apiError
	var leg *upstream.LegError
	var bad *body.BadRequestError
	var wrong *request.Error
	var unserved *pick.NoModelError
	var needs *pick.NeedsPrefillError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &bad):
		return badRequest(bad.Param, bad.Code, bad.Message)
	case errors.As(err, &wrong):
		return fromRequest(wrong)
	case errors.Is(err, errShuttingDown), errors.Is(err, queue.ErrClosed):
		return unavailable("server_shutting_down", "The server is shutting down.")
	case errors.Is(err, record.ErrClientGone), errors.Is(err, context.Canceled):
		return &apiError{Status: record.StatusClientGone, Message: "The client closed the connection.", Type: "server_error", Code: "client_gone"}
	case errors.As(err, &unserved):
		return noModel(unserved.Model)
	case errors.As(err, &needs):
		return refused(http.StatusBadRequest, "not_disaggregable", "The engines can't serve this request: decode needs prefill, and "+needs.Why+" rules that out.")
	case errors.Is(err, pick.ErrNoPrefill):
		return unavailable("prefill_unavailable", "No prefill engine is available.")
	case errors.Is(err, upstream.ErrNoInstance):
		return unavailable("decode_unavailable", "No engine is available.")
	case errors.Is(err, queue.ErrFull):
		return s.crowded("queue_full", "Too many requests in flight.")
	case errors.Is(err, queue.ErrTimeout):
		return s.crowded("queue_timeout", "The request has waited for too long.")
	case errors.Is(err, queue.ErrTenant):
		return &apiError{
			Status: http.StatusTooManyRequests, RetryAfter: "1", Message: "Too many requests of this client in flight.",
			Type: "rate_limit_error", Code: "tenant_limit",
		}
	case errors.As(err, &leg):
		return s.fromLeg(leg)
	}
	return &apiError{Status: http.StatusInternalServerError, Message: "Internal error.", Type: "server_error", Code: "internal"}
}

// fromRequest shapes what a client did wrong.
func fromRequest(wrong *request.Error) *apiError {
	if wrong.Status == http.StatusServiceUnavailable {
		return unavailable(wrong.Code, wrong.Message)
	}
	e := badRequest(wrong.Param, wrong.Code, wrong.Message)
	e.Status = wrong.Status
	return e
}

// maxRetryIn is the longest time for which a client is asked to stay away. A queue is empty long before.
const maxRetryIn = 30 * time.Second

// crowded refuses a request that gets no slot. Retry-After is about as long as turns have waited recently.
func (s *Server) crowded(code, message string) *apiError {
	e := unavailable(code, message)
	delay := min(max(s.turnSlots.Delay(), s.engineSlots.Delay()), maxRetryIn)
	e.RetryAfter = strconv.Itoa(max(1, int(math.Ceil(delay.Seconds()))))
	return e
}

func (s *Server) fromLeg(leg *upstream.LegError) *apiError {
	if errors.Is(leg.Err, upstream.ErrStreamTooLong) {
		return &apiError{Status: http.StatusBadGateway, Message: "The answer is longer than the limit.", Type: "upstream_error", Code: "stream_limit"}
	}
	role := leg.Role.String()
	failed := &apiError{Status: http.StatusBadGateway, Message: "The " + role + " engine failed.", Type: "upstream_error", Code: role + "_failed"}
	switch leg.Kind {
	case upstream.Dial:
		return unavailable(role+"_unavailable", "No "+role+" engine is available.")
	case upstream.Timeout:
		code := role + "_timeout"
		if errors.Is(leg.Err, upstream.ErrIdleTimeout) {
			code = "stream_idle_timeout"
		}
		return &apiError{Status: http.StatusGatewayTimeout, Message: "The " + role + " engine did not answer in time.", Type: "upstream_error", Code: code}
	case upstream.Garbage:
		failed.Code = "bad_" + role + "_answer"
		return failed
	case upstream.Status:
		return s.fromStatus(leg, failed)
	}
	return failed
}

// fromStatus maps an engine's status. An error that the client can mend is passed on with the engine's message. Every other status is a
// failure of the deployment.
func (s *Server) fromStatus(leg *upstream.LegError, failed *apiError) *apiError {
	switch leg.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		e := refused(leg.Status, "invalid_request", s.redact(cmp.Or(leg.Message, "The engine refused the request.")))
		if leg.Type != "" {
			e.Type = s.redact(leg.Type)
		}
		if leg.Param != "" {
			e.Param = s.redact(leg.Param)
		}
		if leg.Status == http.StatusNotFound && leg.Param == "model" {
			e.Code = "model_not_found"
		}
		return e
	case http.StatusUnauthorized, http.StatusForbidden:
		if leg.Forwarded { // the client sent the key and can mend it, so that it gets OpenAI's error; clients would retry a 502
			return refused(leg.Status, "invalid_api_key", "The engines do not accept the API key of the request.")
		}
		failed.Code = "upstream_auth"
	case http.StatusTooManyRequests:
		return &apiError{Status: leg.Status, RetryAfter: retryAfter(leg.RetryAfter), Message: "The engines are overloaded.", Type: "upstream_error", Code: "rate_limited"}
	case http.StatusServiceUnavailable:
		failed.Status, failed.RetryAfter = leg.Status, retryAfter(leg.RetryAfter)
	}
	return failed
}

// retryAfter returns an engine's Retry-After if it is between 0 and 300 seconds, else "1".
func retryAfter(value string) string {
	if n, err := strconv.Atoi(value); err == nil && n >= 0 && n <= 300 {
		return value
	}
	return "1"
}

// redact removes control characters and the names of our instances from an engine's message.
func (s *Server) redact(message string) string {
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return -1
		}
		return r
	}, message)
	engines := slices.Concat(s.deps.Fleet.Engines(upstream.RolePrefill), s.deps.Fleet.Engines(upstream.RoleDecode), s.deps.Fleet.Draining())
	var names []string
	for _, engine := range engines {
		_, authority, _ := strings.Cut(engine.BaseURL, "://")
		names = append(names, engine.BaseURL, authority, engine.Instance().Host())
	}
	// The longest name is replaced first, because a host is the beginning of its authorities.
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		message = strings.ReplaceAll(message, name, "upstream")
	}
	return message
}
