package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
)

// path is the header that says which way the turn went.
func (p reply) path() string {
	values := p.header["X-Kv-Path"] // Go's client canonicalises
	if len(values) != 1 {
		return fmt.Sprintf("%d values", len(values))
	}
	return values[0]
}

// disagg sends turns of fewer uncached tokens to decode alone.
func disagg(threshold int) func(*server.Config) {
	return func(c *server.Config) { c.DisaggThreshold = threshold }
}

// wantPath checks which way a turn went, as its header and its log line tell.
func (r *rig) wantPath(p reply, path string) {
	r.t.Helper()
	if p.path() != path {
		r.t.Errorf("got X-KV-Path %q, want %q", p.path(), path)
	}
	r.until(func() bool { return r.log.count(`"msg":"turn"`, `"kv_path":"`+path+`"`) > 0 }) // a line comes behind its answer
}

func TestPath_BelowTheThresholdDecodeServesAlone(t *testing.T) {
	for _, row := range []struct {
		bytes, threshold int
		path             string
	}{
		{399, 100, "decode_only;reason=disagg_threshold;tokens=99"},
		{400, 100, "prefill_decode;tokens=100"},
		{0, 0, "prefill_decode;tokens=0"},
	} {
		r := newRig(t, setup{cfg: disagg(row.threshold)})
		p := r.send(ask("c", true, strings.Repeat("x", row.bytes)))
		alone := strings.HasPrefix(row.path, "decode_only")
		reuse := "miss;reason=first_turn"
		if alone {
			reuse = "miss;reason=bypass"
		}
		r.wantOK(p, reuse)
		r.wantPath(p, row.path)
		if n := len(r.prefill[0].seen()); (n == 0) != alone {
			t.Errorf("%d bytes, threshold %d: got %d prefill legs", row.bytes, row.threshold, n)
		}
		if l := r.decode[0].seen()[0]; alone && strings.Contains(l.body, "kv_transfer_params") {
			t.Errorf("decode alone got %s", l.body)
		}
	}
}

// What the decode instance holds of the conversation is not computed again: a short follow-up goes straight there, and the ticket
// stays for a longer one.
func TestPath_ShortFollowUpGoesToWhatHoldsTheHistory(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{decodes: 2, cfg: disagg(150)})
		long := strings.Repeat("word ", 160) // 800 bytes: the ticket has 200 tokens
		p := r.send(ask("c", stream, long))
		r.wantPath(p, "prefill_decode;tokens=200")
		p = r.send(ask("c", stream, long, "Hello world", strings.Repeat("x", 400)))
		r.wantOK(p, "miss;reason=bypass")
		r.wantPath(p, "decode_only;reason=disagg_threshold;tokens=100")
		r.wantTickets(0)
		if l := r.decode[0].seen()[1]; strings.Contains(l.body, "kv_transfer_params") {
			t.Errorf("decode alone got %s", l.body)
		}
		p = r.send(ask("c", stream, long, "Hello world", strings.Repeat("x", 700)))
		r.wantOK(p, "hit;tokens=200")
		computed := func(ofStream, ofWhole int) string { // a whole answer tells how many bytes a token has
			return fmt.Sprint("prefill_decode;tokens=", map[bool]int{true: ofStream, false: ofWhole}[stream])
		}
		r.wantPath(p, computed(175, 180))
		// A question of its own under the conversation's id has none of the history, and neither has the cache of another incarnation.
		r.wantPath(r.send(ask("c", stream, strings.Repeat("y", 640))), computed(160, 164))
		r.wantPath(r.send(ask("d", stream, long, "Hello world", "x")), computed(203, 208))
		r.tell(r.decode[0], metricsOf("1.6e+09", rigBlock))
		r.engine(r.decode[0]).Refresh(t.Context())
		r.wantTickets(1)
		r.wantPath(r.send(ask("c", stream, long, "Hello world", "x")), computed(203, 208))
	})
}

// Turns below the threshold are no failure of prefill: there may be any number of them.
func TestPath_ThresholdNeedsNoSlotOfDecodeAlone(t *testing.T) {
	r := newRig(t, setup{cfg: disagg(1000)})
	gate := make(chan struct{})
	r.decode[0].always(waits(gate, decodes))
	const turns = 20
	answers := make(chan reply, turns)
	for range turns {
		go func() { answers <- r.turn("", 1, false) }()
	}
	r.decode[0].await(turns)
	close(gate)
	for range turns {
		r.wantOK(<-answers, "miss;")
	}
}

// A decode instance that refuses takes along what made the way worth it.
func TestPath_IsDecidedAnewWhenTheHolderRefuses(t *testing.T) {
	r := newRig(t, setup{decodes: 2, cfg: disagg(150)})
	long := strings.Repeat("word ", 160)
	r.wantOK(r.send(ask("c", true, long)), "miss;reason=first_turn")
	r.decode[0].server.Close()
	p := r.send(ask("c", true, long, "Hello world", "x"))
	r.wantPath(p, "prefill_decode;tokens=203")
	r.decode[1].wantLegs(1)
}

func TestPath_RequestsThatNoHandOverServes(t *testing.T) {
	r := newRig(t, setup{})
	for member, why := range map[string]string{`"n":2`: "n", `"use_beam_search":true`: "n", `"truncate_prompt_tokens":-1`: "truncate_prompt_tokens"} {
		r.wantPath(r.send(strings.Replace(ask("c", false, "12345678"), "{", "{"+member+",", 1)), "decode_only;reason="+why+";tokens=2")
	}
	r.wantPath(r.sendTo(textPath, `{"model":"m","prompt":["1234","5678"]}`), "decode_only;reason=n;tokens=2")
	if p := r.send(`{"n":"x"}`); len(p.header["X-Kv-Path"]) != 0 {
		t.Errorf("a refused request has a path: %q", p.path())
	}
}

// How many bytes a token has is learnt from what prefill counts, for each model by itself.
func TestPath_LearnsHowManyBytesATokenHas(t *testing.T) {
	r := newRig(t, setup{})
	text := strings.Repeat("word ", 400) // 2,000 bytes
	prefillsOf(r, 1000)
	p := r.send(ask("", true, text))
	r.wantPath(p, "prefill_decode;tokens=500")
	for range 40 {
		p = r.send(ask("", true, text))
	}
	if n := tokensOf(t, p); n < 950 || n > 1000 {
		t.Errorf("got an estimate of %d tokens after forty prompts of a thousand", n)
	}
	r.wantPath(r.send(strings.Replace(ask("", true, text), `"model":"m"`, `"model":"other"`, 1)), "prefill_decode;tokens=500")
}

// Decode's count serves too where decode has computed the prompt.
func TestPath_LearnsFromDecodeAlone(t *testing.T) {
	r := newRig(t, setup{cfg: disagg(1_000_000)})
	text := strings.Repeat("word ", 400)
	r.decode[0].always(replyBody("application/json", `{"id":"x","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000}}`))
	for range 40 {
		_ = r.send(ask("", false, text))
	}
	if n := tokensOf(t, r.send(ask("", false, text))); n < 950 || n > 1000 {
		t.Errorf("got an estimate of %d tokens after forty prompts of a thousand", n)
	}
}

// prefillsOf has prefill count that many tokens in every prompt.
func prefillsOf(r *rig, tokens int) {
	r.prefill[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		answerJSON(w, fmt.Sprintf(`{"id":"chatcmpl-%s","choices":[],"usage":{"prompt_tokens":%d},"kv_transfer_params":%s}`, l.id(), tokens, handover(l)))
	})
}

// tokensOf is the estimate that a turn's header tells.
func tokensOf(t *testing.T, p reply) (n int) {
	t.Helper()
	_, tokens, _ := strings.Cut(p.path(), "tokens=")
	if _, err := fmt.Sscan(tokens, &n); err != nil {
		t.Fatalf("got X-KV-Path %q, want tokens", p.path())
	}
	return n
}
