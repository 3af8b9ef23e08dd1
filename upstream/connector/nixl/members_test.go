package nixl

import (
	"bytes"
	"strings"
	"testing"

	"carryover/upstream"
)

// keptOf keeps decode's params, and loses the buffer in which they came.
func keptOf(t *testing.T, raw string) (parsed upstream.TicketParams, copied []byte) {
	t.Helper()
	final := []byte(raw)
	parsed, err := Connector{}.ParseTicket(final, 0)
	must(t, err)
	copied = bytes.Clone(parsed.Params)
	clear(final)
	clear(final[:cap(final)])
	return parsed, copied
}

// What was read of a ticket serves every leg as well as the ticket alone, whatever has become of the answer that it came in.
func TestReading_ServesAsTheTicketDoes(t *testing.T) {
	holder := &upstream.Instance{Name: "d", BaseURL: "http://10.0.0.2:8200", KVHost: "pin"}
	for _, raw := range []string{
		ticket,
		ticket[:len(ticket)-1] + `,"output_token_ids":[1,2],"prompt_token_ids":[3], "new" : 1.50}`,
		`{"prompt_token_ids":[3] , "output_token_ids" : [1,2],` + ticket[1:],
		strings.Replace(ticket, `"remote_host"`, ` "output_token_ids" : null, "remote_host" `, 1),
	} {
		parsed, params := keptOf(t, raw)
		for _, offer := range []upstream.TicketOffer{
			{Tokens: 109, BlockSize: 32}, {Tokens: 64, BlockSize: 32}, {Tokens: 109, PromptIDs: []byte("[5,6]")},
			{Tokens: 65, BlockSize: 32, PromptIDs: []byte("[5]")}, {Release: true},
		} {
			offer.Holder, offer.Ticket = holder, params
			want, err := prefillParams(offer)
			must(t, err)
			offer.Reading = parsed.Reading
			got, err := prefillParams(offer)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%+v of %.60s: got %s, %v, want %s", offer, raw, got, err, want)
			}
		}
		if p := parsed.Reading.(*kvParams); p.raw != nil || p.output != nil {
			t.Error("what was read holds the memory of the answer")
		}
	}
}

func TestReading_IsOfNoOtherTicket(t *testing.T) {
	parsed, _ := keptOf(t, ticket)
	for name, raw := range map[string]string{
		"longer":             with(t, ticket, "pad", "1"),
		"more tokens":        with(t, ticket, "remote_num_tokens", "128"),
		"in other places":    strings.Replace(with(t, ticket, "remote_block_ids", "[[1,2,3]]"), "f-86", "f---86", 1),
		"of fewer blocks":    with(t, ticket, "remote_block_ids", "[[1,2]]"),
		"no ticket":          strings.Repeat("x", len(ticket)),
		"no ticket, shorter": "x",
	} {
		if p := parsed.Reading.(*kvParams).of([]byte(raw)); p != nil {
			t.Errorf("%s: got it taken for the ticket", name)
		}
	}
}

func TestParseTicket_ReadsInFewAllocations(t *testing.T) {
	raw := []byte(ticket)
	if n := testing.AllocsPerRun(100, func() { _, _ = parseTicket(raw) }); n > 6 { // the params, three texts, and the places of the members
		t.Errorf("a ticket is read in %v allocations, want 6", n)
	}
}
