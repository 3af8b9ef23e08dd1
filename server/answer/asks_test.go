package answer

import (
	"testing"

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
			req := &body.Request{API: body.API(api)}
			if got := NewLeg(req, true, plugIn).Asks.IDs; got != asks {
				t.Errorf("%s, plug-in %v: got %t, want %t", body.API(api).Path(), plugIn, got, asks)
			}
		}
	}
}
