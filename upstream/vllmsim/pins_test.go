package vllmsim

import (
	"net/http"
	"testing"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
)

func TestPins_EndWithLeaseAndTTL(t *testing.T) {
	p, d := startPair(t, nil)
	messages := []any{user(longText)}
	stranded := prefillWith(t, p, messages, prefillTemplate(), "stranded")
	if _, ok := stranded.params()["remote_blocks_expiry_time"]; !ok || stranded.params()["remote_blocks_expiry_time"] != nil {
		t.Errorf("prefill's expiry time is %v, want null", stranded.params()["remote_blocks_expiry_time"])
	}
	turn(t, p, d, messages, nil, nil)

	p.Advance(29 * time.Second)
	d.Advance(479 * time.Second)
	expect(t, p, counts{"Pins": 1})
	expect(t, d, counts{"Pins": 1})
	p.Advance(time.Second)
	d.Advance(time.Second)
	expect(t, p, counts{"Pins": 0, "LeasesExpired": 1, "TTLExpired": 0})
	expect(t, d, counts{"Pins": 0, "TTLExpired": 1, "FreeBlocks": d.config().Blocks})
}

func TestPins_ReadAfterLeaseIsCounted(t *testing.T) {
	p, d := startPair(t, nil)
	messages := []any{user(longText)}
	prefill := prefillWith(t, p, messages, prefillTemplate(), "s")
	p.Advance(31 * time.Second)
	got := chat(t, d, object{"model": "sim", "messages": messages, "kv_transfer_params": prefill.params()})
	got.answers(t, http.StatusOK)
	expect(t, p, counts{"ExpiredReads": 1, "LateNotifications": 1})
}

func TestPins_HeartbeatProlongsTheLeaseOnly(t *testing.T) {
	p := startInstance(t, nil)
	e := p.engines()[0]
	prefill := prefillWith(t, p, []any{user(longText)}, prefillTemplate(), "s")
	id := prefill.params()["remote_request_id"].(string)
	p.Advance(25 * time.Second)
	e.Heartbeat(id)
	p.Advance(19 * time.Second)
	expect(t, p, counts{"Pins": 1})
	p.Advance(2 * time.Second)
	expect(t, p, counts{"Pins": 0, "LeasesExpired": 1})

	d := startInstance(t, nil)
	decode := chat(t, d, with(asking("hi"), object{"kv_transfer_params": object{"x": 1}}))
	d.Advance(479 * time.Second)
	d.engines()[0].Heartbeat(decode.params()["remote_request_id"].(string))
	d.Advance(2 * time.Second)
	expect(t, d, counts{"Pins": 0})
}

func TestDecode_GoneBeforeReadingFreesPrefill(t *testing.T) {
	p := startInstance(t, nil)
	d := startInstance(t, func(c *Config) { c.Timing.Overhead = time.Hour })
	messages := []any{user(longText)}
	prefill := prefillWith(t, p, messages, prefillTemplate(), "s")
	takeBack := begin(t, d, wire.PathChat, object{"model": "sim", "messages": messages, "kv_transfer_params": prefill.params()})
	becomes(t, d, counts{"Running": 1})
	takeBack()
	becomes(t, p, counts{"Releases": 1})
	expect(t, d, counts{"Pins": 0, "FreeBlocks": d.config().Blocks})
}

func TestPins_TwoReadersAtOnceAreADoubleRead(t *testing.T) {
	p := startInstance(t, nil)
	e := p.engines()[0]
	params := prefillWith(t, p, []any{user(longText)}, prefillTemplate(), "s").params()
	id, blocks := params["remote_request_id"].(string), ids(params["remote_block_ids"].([]any)[0])
	for range 2 {
		// Neither reader has reported when the other begins.
		if _, _, err := e.ReadBlocks(engine.SideRequest{RequestID: id, Blocks: blocks}); err != nil {
			t.Fatal(err)
		}
	}
	e.Notified(engine.SideRequest{RequestID: id})
	expect(t, p, counts{"DoubleReads": 1, "Reads": 1, "Pins": 0})
	if _, _, err := e.ReadBlocks(engine.SideRequest{RequestID: "chatcmpl-never-seen", Blocks: blocks}); err != nil || p.Stats().UnknownReads != 1 {
		t.Errorf("a read for a request never pinned: error %v, unknown reads %d; want none and 1", err, p.Stats().UnknownReads)
	}
}
