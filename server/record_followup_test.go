package server_test

import (
	"strings"
	"testing"
)

// A follow-up is told by its request, or by what the store has of its conversation.
func TestRecord_TellsFollowUps(t *testing.T) {
	text := func(conversation, prompt string) string {
		return `{"model":"m","stream":true,"prompt":"` + prompt + `","conversation_id":"` + conversation + `"}`
	}
	for name, row := range map[string]struct {
		before, path, request string
		header                []string
		follows               bool
		reuse                 string
	}{
		"the first turn":                {"", chatPath, ask("c", true, history(1)...), nil, false, "miss;reason=first_turn"},
		"the second turn":               {ask("c", true, history(1)...), chatPath, ask("c", true, history(2)...), nil, true, "hit;"},
		"a conversation from elsewhere": {"", chatPath, ask("c", true, history(3)...), nil, true, "miss;reason=nothing_stored"},
		"a follow-up without a name":    {"", chatPath, ask("", true, history(2)...), nil, true, "miss;reason=no_conversation"},
		"a lone question":               {"", chatPath, ask("", true, history(1)...), nil, false, "miss;reason=no_conversation"},
		"the id of another chat":        {ask("c", true, history(1)...), chatPath, ask("c", true, "another question"), nil, true, "miss;reason=history_rewritten"},
		"no reuse wanted":               {"", chatPath, ask("c", true, history(2)...), []string{"X-KV-Reuse", "off"}, false, "off"},
		"the first text":                {"", textPath, text("t", "once upon"), nil, false, "miss;reason=first_turn"},
		"a text that goes on":           {text("t", "once upon"), textPath, text("t", "once upon a time"), nil, true, ""},
		"a malformed request":           {"", chatPath, `{`, nil, false, "miss;reason=bypass"},
	} {
		t.Run(name, func(t *testing.T) {
			r, all := recorded(t, setup{})
			seen := 0
			if row.before != "" {
				r.sendTo(row.path, row.before)
				seen++
				r.until(func() bool { return len(all()) == seen })
			}
			p := r.sendTo(row.path, row.request, row.header...)
			if r.until(func() bool { return len(all()) == seen+1 }); p.status == 200 {
				r.wantOK(p, row.reuse)
			}
			if got := all()[seen]; got.Reuse.FollowUp() != row.follows || got.Reuse.Hit && !got.Reuse.FollowUp() {
				t.Errorf("follow-up: %v, want %v: %+v", got.Reuse.FollowUp(), row.follows, got.Reuse)
			}
		})
	}
}

// Only a stream has a first token. What came in one piece has the time of its whole answer.
func TestRecord_TimesStreamsAndWholeAnswersApart(t *testing.T) {
	for name, row := range map[string]struct {
		stream, whole bool
	}{"a stream": {true, false}, "a whole answer": {false, true}} {
		t.Run(name, func(t *testing.T) {
			r, all := recorded(t, setup{})
			p := r.turn("c", 1, row.stream)
			r.wantOK(p, "miss;reason=first_turn")
			r.until(func() bool { return len(all()) == 1 })
			got := all()[0]
			if (got.TTFT > 0) == row.whole || (got.Whole > 0) != row.whole || got.TTFT > got.Took || got.Whole > got.Took {
				t.Errorf("first token %s, whole answer %s of %s: %+v", got.TTFT, got.Whole, got.Took, got.Answer)
			}
			wantTiming(t, p, map[string]bool{"ttft;dur=": !row.whole, "answer;dur=": row.whole})
		})
	}
}

func wantTiming(t *testing.T, p reply, has map[string]bool) {
	t.Helper()
	for name, want := range has {
		if got := p.header.Get("Server-Timing"); strings.Contains(got, name) != want {
			t.Errorf("got Server-Timing %q; %s in it: want %v", got, name, want)
		}
	}
}
