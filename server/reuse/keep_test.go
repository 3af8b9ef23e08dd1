package reuse

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// answersOf is a turn of an API that gets an answer without params.
func answersOf(decode *fleet.Incarnation, api body.API, stream bool) *Origin {
	return &Origin{Proof: &Proof{Admitted: &Admitted{Request: &request.Request{API: api, Stream: stream}}, turn: "turn"}, Decode: decode}
}

// tellsVersion asks engines of vLLM 0.33.
type tellsVersion struct{}

// Fetch implements Fetcher.
func (tellsVersion) Fetch(context.Context, *upstream.Instance, string, string, int64) (status int, body []byte, err error) {
	return http.StatusOK, []byte(`{"version":"0.33.0"}`), nil
}

// What stock engines do on these APIs is held against none of their starts.
func TestDialect_AnEmptyAnswerSaysNothingOfTheIncarnation(t *testing.T) {
	engines := fleet.New(fleet.Config{})
	engines.Set([]upstream.Instance{{Name: "d", Role: upstream.RoleDecode}})
	incarnation := engines.Engines(upstream.RoleDecode)[0].Last()
	var log strings.Builder
	var asked sync.WaitGroup
	tickets := New(
		Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		Deps{Legs: tellsVersion{}, Background: func(_, _ string, work func()) { asked.Go(work) }},
	)
	for range 5 {
		for _, stream := range []bool{true, false} {
			tickets.sentNothing(answersOf(incarnation, body.Messages, stream))
			tickets.sentNothing(answersOf(incarnation, body.Responses, stream))
		}
	}
	asked.Wait()
	if incarnation.Silence.Silent() || strings.Count(log.String(), "version 1.2 or newer of the plug-in") != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("silent: %t, logged %q; want one warning that names the plug-in", incarnation.Silence.Silent(), log.String())
	}
}
