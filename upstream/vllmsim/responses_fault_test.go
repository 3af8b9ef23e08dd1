package vllmsim

import (
	"testing"

	"carryover/upstream/vllmsim/recordedtest"
	"carryover/upstream/vllmsim/wire"
)

func TestResponses_ExpiredTicket(t *testing.T) {
	p, d := startPair(t, func(c *Config) { c.Render = true })
	body := responseBody(nil, longText)
	params := prefilledByIDs(t, p, renderedIDs(t, p, wire.PathResponses, body), prefillTemplate())
	p.Restart()
	body = with(body, object{"kv_transfer_params": params})
	if got := post(t, d, wire.PathResponses, body); got.status != 500 || string(got.raw) != `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}` {
		t.Errorf("answered %d %s", got.status, got.raw)
	}
	_, _, got, err := attemptAt(t, d, wire.PathResponses, with(body, object{"stream": true}))
	events := recordedtest.Frames(t, got)
	if err == nil || len(events) != 2 || events[0].Name != "response.created" || events[1].Name != "response.in_progress" {
		t.Errorf("stream %v, error %v; want two events and the connection cut", events, err)
	}
}
