package reuse

import (
	"log/slog"
	"strings"
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

// What stock engines do on these APIs is held against none of their starts.
func TestDialect_AnEmptyAnswerSaysNothingOfTheIncarnation(t *testing.T) {
	engines := fleet.New(fleet.Config{})
	engines.Set([]upstream.Instance{{Name: "d", Role: upstream.RoleDecode}})
	incarnation := engines.Engines(upstream.RoleDecode)[0].Last()
	var log strings.Builder
	tickets := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, Deps{})
	for range 5 {
		for _, stream := range []bool{true, false} {
			tickets.sentNothing(answersOf(incarnation, body.Messages, stream))
			tickets.sentNothing(answersOf(incarnation, body.Responses, stream))
		}
	}
	if incarnation.Silence.Silent() || log.String() != "" {
		t.Errorf("silent: %t, logged %q", incarnation.Silence.Silent(), log.String())
	}
}
