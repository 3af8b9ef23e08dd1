package vllmsim

import (
	"testing"

	"carryover/upstream/vllmsim/recordedtest"
	"carryover/upstream/vllmsim/wire"
)

func TestMessages_ExpiredTicketIsInternalError(t *testing.T) {
	p, d := startPair(t, func(c *Config) { c.Render = true })
	body := messageBody(nil, user(longText))
	params := prefilledByIDs(t, p, renderedIDs(t, p, wire.PathMessages, body), prefillTemplate())
	p.Restart()
	got := post(t, d, wire.PathMessages, with(body, object{"kv_transfer_params": params}))
	if want := `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`; got.status != 500 || string(got.raw) != want {
		t.Errorf("answered %d %s", got.status, got.raw)
	}
	stream := recordedtest.Frames(t, string(post(t, d, wire.PathMessages, with(body, object{"stream": true, "kv_transfer_params": params})).raw))
	if len(stream) != 2 || stream[0].Name != "message_start" || stream[1].Name != "error" {
		t.Errorf("stream %v", stream)
	}
}
