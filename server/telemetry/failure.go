package telemetry

import (
	"errors"
	"net/http"

	"carryover/server/record"
	"carryover/upstream"
)

// Failures for which no other package has a word.
const (
	clientGone = "client_gone"
	errorOther = "_OTHER" // the word of the conventions for any other error
)

// failureOf returns how a turn failed, "" if it did not, and whether the deployment is at fault and not the client. Spans and metrics use
// the same word: the code of the error that the client got.
func failureOf(r *record.Turn) (kind string, ours bool) {
	switch {
	case r.ClientLeft():
		return clientGone, false
	case r.End.Code != "":
		return r.End.Code, r.End.Status >= http.StatusInternalServerError || r.End.Status == http.StatusOK // status 200: the answer broke off
	case r.End.Err != nil:
		return failureOfLeg(r.End.Err), true
	}
	return "", false
}

// failureOfLeg returns how a leg failed, in a word of package upstream, "" if it did not fail.
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
