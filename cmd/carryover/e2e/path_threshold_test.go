package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// disaggFrom is a file that sends turns of fewer tokens to decode alone.
func disaggFrom(tokens int) string { return fmt.Sprintf("routing: {disagg_threshold: %d}\n", tokens) }

// wantAlone checks that a turn went to decode alone, and as engines see it: no leg of prefill, and no params for decode.
func (o *rig) wantAlone(t *testing.T, a *answered, rec *record.Turn, before int) {
	t.Helper()
	if path := rec.Path.Header(); !strings.HasPrefix(path, "decode_only;reason=disagg_threshold;tokens=") || a.header.Get("X-KV-Path") != path {
		t.Errorf("X-KV-Path %q, in the log %q, want decode alone below the threshold", a.header.Get("X-KV-Path"), path)
	}
	if got := o.prefillLegs(); got != before {
		t.Errorf("prefill got %d legs", got-before)
	}
	for _, instance := range o.decode {
		if instance.URL() != "http://"+rec.Leg(upstream.RoleDecode).Instance {
			continue
		}
		bodies := legs(instance)
		if params := gjson.GetBytes(bodies[len(bodies)-1], "kv_transfer_params"); params.Exists() {
			t.Errorf("decode alone got kv_transfer_params %s", params.Raw)
		}
	}
}

// wantBoth checks that a turn went over prefill.
func wantBoth(t *testing.T, a *answered) {
	t.Helper()
	if path := a.header.Get("X-KV-Path"); !strings.HasPrefix(path, "prefill_decode;tokens=") {
		t.Errorf("X-KV-Path %q, want prefill and decode", path)
	}
}

// prefillLegs is how many completions prefill has been asked for.
func (o *rig) prefillLegs() (n int) {
	for _, instance := range o.prefill {
		n += len(legs(instance))
	}
	return n
}

// A short prompt is decode's alone and pins nothing; a long one is not; a short follow-up of the long conversation goes to the
// instance that holds it and finds it there, and the ticket stays for a turn that is worth it.
func TestThreshold_OfAWholeConversation(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			o := startOperated(t, rigConfig{
				cfg: vllmsim.DefaultConfig(), decodes: 3, file: disaggFrom(300),
			})
			long := strings.Repeat(longText(1)+" ", 6)
			for i := range 2 { // proofs are learnt
				teacher := &foretold{rig: o, id: "teacher", stream: stream}
				for range 3 {
					teacher.say(t, fmt.Sprint(i, long))
				}
			}
			pinned, asked := o.sum(t, config.RoleDecode)["pins"], o.prefillLegs()

			short := &foretold{rig: o, id: "short", stream: stream}
			a, rec := short.say(t, "Hello.")
			o.wantAlone(t, a, &rec, asked)
			if got := o.sum(t, config.RoleDecode)["pins"]; got != pinned {
				t.Errorf("%d pins after a short turn, want %d", got, pinned)
			}

			talk := &foretold{rig: o, id: "long", stream: stream}
			a, rec = talk.say(t, long)
			wantBoth(t, a)
			holder := rec.Leg(upstream.RoleDecode).Instance
			pinned, asked = o.sum(t, config.RoleDecode)["pins"], o.prefillLegs()
			for i := range 3 {
				before := o.sum(t, config.RoleDecode)
				a, rec = talk.say(t, fmt.Sprintf("Short question %d.", i))
				o.wantAlone(t, a, &rec, asked)
				after := o.sum(t, config.RoleDecode)
				if got := rec.Leg(upstream.RoleDecode).Instance; got != holder {
					t.Errorf("follow-up %d went to %s, want %s, which holds the conversation", i, got, holder)
				}
				prompt, hits := after["prompt_tokens"]-before["prompt_tokens"], after["local_hit_tokens"]-before["local_hit_tokens"]
				if prompt < 500 || prompt-hits > 60 {
					t.Errorf("follow-up %d: %d of %d tokens were found in the prefix cache, want all but the question", i, hits, prompt)
				}
				if after["pins"] != pinned {
					t.Errorf("follow-up %d: %d pins, want %d", i, after["pins"], pinned)
				}
			}

			o.reload(t, disaggFrom(0))
			a, rec = talk.say(t, "Short question again.")
			wantBoth(t, a)
			if !strings.HasPrefix(a.reuse(), "hit;") || rec.Leg(upstream.RoleDecode).Instance != holder {
				t.Errorf("with the threshold off: X-KV-Reuse %q on %s, want a hit on %s", a.reuse(), rec.Leg(upstream.RoleDecode).Instance, holder)
			}
			o.reload(t, disaggFrom(100_000))
			asked = o.prefillLegs()
			a, rec = talk.say(t, long)
			o.wantAlone(t, a, &rec, asked)
			o.verify(t, pins{})
		})
	}
}
