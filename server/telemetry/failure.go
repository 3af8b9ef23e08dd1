package telemetry

import (
	"errors"
	"net/http"

	"carryover/server"
	"carryover/upstream"
)

// Failures that have no word elsewhere.
const (
	clientGone  = "client_gone"
	engineError = "engine_error" // an error that decode put into its stream
	errorOther  = "_OTHER"       // the convention's own
)

// statusClientGone is what a record has for a client that had gone before it got a status.
const statusClientGone = 499

// failureOf is how a turn failed, "" if it did not, and whether that is the deployment's doing and not the client's. Spans and metrics
// call it the same: by the code of the error that the client got.
func failureOf(r *server.Record) (kind string, ours bool) {
	switch {
	case r.ClientLeft():
		return clientGone, false
	case r.Code != "":
		return r.Code, r.Status >= http.StatusInternalServerError || r.Status == http.StatusOK // of a stream that broke off
	case r.Err != nil:
		return failureOfLeg(r.Err), true
	case r.Answer.Fault != 0:
		return engineError, true
	}
	return "", false
}

// failureOfLeg is how a leg failed, in a word of package upstream, "" if it did not.
func failureOfLeg(err error) string {
	var leg *upstream.LegError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &leg):
		return leg.Kind.String()
	}
	return errorOther
}
