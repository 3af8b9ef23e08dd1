package answer

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"carryover/sse"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// secretIn says what of a stream's events no client may see, read as clients read them; "" for nothing.
func secretIn(api body.API, stream string) string {
	var secret string
	r := sse.New(io.Discard, nil, sse.Config{MaxEvent: 64 << 20, Observe: func(ev sse.Event) sse.Verdict {
		var event map[string]any
		if json.Unmarshal(ev.Data, &event) != nil {
			return sse.Forward
		}
		if event[ParamsMember] != nil {
			secret = string(ev.Data)
		}
		response, _ := event["response"].(map[string]any)
		for _, name := range []string{ParamsMember, "input_messages", "output_messages"} {
			if api == body.Responses && response[name] != nil {
				secret = string(ev.Data)
			}
		}
		return sse.Forward
	}})
	_ = r.Run(strings.NewReader(stream)) // a string does not fail
	return secret
}

// sameSplit checks that a stream of any bytes hides what is to be hidden, however it arrives.
func sameSplit(t *testing.T, api body.API, text string, restart bool) {
	t.Helper()
	var first *agentStream
	var failed error
	for split, from := range agentSplits(text) {
		answerIDs := &facts.AnswerIDs{}
		got, err := relayAgents(answerIDs, api, "leg", Asks{IDs: true, Hidden: true}, restart, from)
		if secret := secretIn(api, got.out.String()); secret != "" {
			t.Errorf("%s: the client sees %q", split, secret)
		}
		if first == nil {
			first, failed = got, err
		}
		if got.out.String() != first.out.String() || got.ending != first.ending || got.ineligible != first.ineligible || got.failed != first.failed || (err == nil) != (failed == nil) {
			t.Errorf("%s: %v, %+v, odd %q, relayed %q\nelsewhere %v, %+v, odd %q, relayed %q", split, err, got.ending, got.ineligible, got.out.String(), failed, first.ending, first.ineligible, first.out.String())
		}
	}
}

func FuzzMessagesStream(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, restart bool) { sameSplit(t, body.Messages, text, restart) })
}

func FuzzResponsesStream(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, restart bool) { sameSplit(t, body.Responses, text, restart) })
}
