package nixl

import (
	"strings"
	"testing"

	"carryover/upstream"
)

// Params of vLLM 0.33 say how often their engine has registered its KV memory. The reader needs that number, whatever else is changed.
func TestParams_GenerationIsReadAndNeverDropped(t *testing.T) {
	const generation = `"remote_registration_generation":3`
	held := with(t, ticket, "remote_registration_generation", "3")
	instance := &upstream.Instance{BaseURL: "http://h:1", KVHost: "another"}
	var connector Connector
	parsed, err := connector.ParseTicket([]byte(held), 0)
	if err != nil || parsed.Generation != 3 || !strings.Contains(string(parsed.Params), generation) {
		t.Fatalf("ParseTicket = %+v, %v, want generation 3", parsed, err)
	}
	if old, err := connector.ParseTicket([]byte(ticket), 0); err != nil || old.Generation != 0 {
		t.Errorf("ParseTicket = %+v, %v, want no generation before 0.33", old, err)
	}
	for name, offer := range map[string]upstream.TicketOffer{
		"whole":    {Tokens: 109},
		"cut":      {Tokens: 96, BlockSize: 32},
		"with ids": {Tokens: 109, PromptIDs: []byte("[1,2]")},
		"release":  {Release: true},
	} {
		for read, reading := range map[string]any{"read": parsed.Reading, "unread": nil} {
			offer.Ticket, offer.Reading, offer.Holder = parsed.Params, reading, instance
			if params, err := prefillParams(offer); err != nil || !strings.Contains(string(params), generation) {
				t.Errorf("%s, %s: %s, %v, want the generation in it", name, read, params, err)
			}
		}
	}
	handed, err := parseHandover([]byte(with(t, handover, "remote_registration_generation", "3")))
	if err != nil || !strings.Contains(string(handed.forward(edit{Host: "another", PromptIDs: []byte("[1]")})), generation) {
		t.Errorf("hand-over: %v, want the generation in it", err)
	}
	for _, value := range []string{`"3"`, "null", "-1", "1.5", "true", "99999999999"} {
		if _, err := connector.ParseTicket([]byte(with(t, ticket, "remote_registration_generation", value)), 0); err == nil || !strings.Contains(err.Error(), "remote_registration_generation") {
			t.Errorf("generation %s: error %v, want one: the engine compares numbers", value, err)
		}
	}
}
