package answer

import (
	"io"
	"strings"
	"testing"
	"time"

	"carryover/sse"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// A recorded stream that ends in order behind any of its events is whole only where nothing of the answer is missing. Without Complete each
// of them would pass for whole.
func TestComplete_MutantWithoutItTakesEachEndForWhole(t *testing.T) {
	type stream struct {
		api       body.API
		leg, text string
		ends      string // is in the first event behind which the answer is whole
	}
	streams := map[string]stream{
		"messages":  {body.Messages, "proto-1", agentRecording(t, "04-messages-decode-stream-params-in-message-delta"), "event: message_stop"},
		"responses": {body.Responses, "9be3b587e87f3b76", agentRecording(t, "09-responses-decode-stream"), "event: response.completed"},
	}
	for _, rec := range recordings() {
		streams[rec.file] = stream{rec.api, rec.id, rec.stream(t), `"finish_reason":"`}
	}
	for name, s := range streams {
		events := strings.SplitAfter(s.text, "\n\n")
		part, whole, mutants := "", false, 0
		for _, event := range events[:len(events)-1] {
			part += event
			whole = whole || strings.Contains(event, s.ends)
			relay := func(change func(*sse.Config)) error {
				cfg := agentAnswer(&facts.AnswerIDs{}, s.api, s.leg, Asks{}, &told{}).Relay()
				change(&cfg)
				return sse.New(io.Discard, nil, cfg).Run(strings.NewReader(part))
			}
			if err := relay(func(*sse.Config) {}); (err == nil) != whole {
				t.Errorf("%s: %v behind %.200q, want an error %t", name, err, event, !whole)
			}
			if err := relay(func(c *sse.Config) { c.Complete = nil }); err == nil && !whole {
				mutants++
			}
		}
		if !whole || mutants == 0 {
			t.Errorf("%s: whole %t, and without Complete %d parts pass for whole", name, whole, mutants)
		}
	}
}

// A usage that lacks a count does not show that an id was lost.
func TestCompleteness_NeedsBothCounts(t *testing.T) {
	for usage, want := range map[string]Completeness{
		`null`: Uncounted, `{"prompt_tokens":2}`: Uncounted, `{"completion_tokens":2}`: Uncounted, `{"prompt_tokens":2,"completion_tokens":2}`: Complete,
	} {
		a := agentAnswer(&facts.AnswerIDs{}, body.Text, "leg", Asks{UsageDue: true}, &told{})
		a.Whole([]byte(`{"id":"cmpl-leg","choices":[{"index":0,"text":"w","finish_reason":"stop"}],"usage":` + usage + `}`))
		if got := a.Result(false).Completeness; got != want {
			t.Errorf("%s: got %v, want %v", usage, got, want)
		}
	}
}

// inPieces is a stream whose pieces come one by one, each at a time of its own.
type inPieces struct {
	told
	pieces []string
	n      int // that have come
}

// FreshAsOf implements Turn.
func (i *inPieces) FreshAsOf() time.Time { return time.Unix(int64(i.n), 0) }

// Read implements io.Reader.
func (i *inPieces) Read(p []byte) (n int, err error) {
	if i.n == len(i.pieces) {
		return 0, io.EOF
	}
	n = copy(p, i.pieces[i.n])
	i.n++
	return n, nil
}

// Decode's TTL runs from the first byte that shows its end, whatever comes behind it.
func TestResult_IsAsOldAsTheFinish(t *testing.T) {
	text, finish := `data: {"id":"cmpl-leg","choices":[{"index":0,"text":"w","finish_reason":null}]}`+"\n\n", `data: {"id":"cmpl-leg","choices":[{"index":0,"text":"","finish_reason":"stop"}]}`+"\n\n"
	params := `data: {"id":"cmpl-leg","choices":[],"kv_transfer_params":{"a":1}}` + "\n\n"
	for _, pieces := range [][]string{
		{text, finish + params}, {text, finish, params}, {text, finish[:1], finish[1:9], finish[9:], params, "data: [DONE]\n\n"}, {text, finish[:50], finish[50:] + params},
	} {
		r := &inPieces{pieces: pieces}
		a := agentAnswer(&facts.AnswerIDs{}, body.Text, "leg", Asks{}, r)
		_ = sse.New(io.Discard, nil, a.Relay()).Run(r) // some lack their end
		if got := a.Result(false).FreshAsOf; got.Unix() != 2 {
			t.Errorf("%q: fresh as of read %d, want the second", pieces, got.Unix())
		}
	}
}
