package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"carryover/server/background"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

func TestDialect_WhoIsAskedForIDs(t *testing.T) {
	for api, want := range [body.APIs]map[facts.Finding]bool{
		body.Chat: {facts.Yes: false, facts.No: true}, body.Text: {facts.Yes: false, facts.No: true},
		body.Messages:  {facts.Yes: false, facts.No: false}, // which can't be
		body.Responses: {facts.Yes: true, facts.No: true},   // of which the plug-in knows nothing
	} {
		for plugIn, asks := range want {
			if got := asksIDs(body.API(api), plugIn); got != asks {
				t.Errorf("%s, plug-in %v: got %t, want %t", body.API(api).Path(), plugIn, got, asks)
			}
		}
	}
}

// tellsVersion is legs to engines of vLLM 0.33.
type tellsVersion struct{ Legs }

// Fetch implements Legs.
func (tellsVersion) Fetch(context.Context, *upstream.Instance, string, string, int64) (status int, body []byte, err error) {
	return http.StatusOK, []byte(`{"version":"0.33.0"}`), nil
}

// What stock engines do on these APIs is held against none of their starts.
func TestDialect_AnEmptyAnswerSaysNothingOfTheIncarnation(t *testing.T) {
	_, incarnation := newPair(t)
	var log strings.Builder
	k := &ticketMaker{cfg: &Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, deps: &Deps{Legs: tellsVersion{}}, background: &background.Group{}}
	for range 5 {
		for _, stream := range []bool{true, false} {
			k.sentNothing(&turn{Request: request.Request{API: body.Messages, Stream: stream}}, incarnation)
			k.sentNothing(&turn{Request: request.Request{API: body.Responses, Stream: stream}}, incarnation)
		}
	}
	k.background.Wait()
	if incarnation.Silence.Silent() || strings.Count(log.String(), "version 1.2 or newer of the plug-in") != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("silent: %t, logged %q; want one warning that names the plug-in", incarnation.Silence.Silent(), log.String())
	}
}
