package nixl

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// idsOf is a list of so many ids.
func idsOf(n int) []byte {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(1000 + i)
	}
	return rawjson.AppendIDs(nil, ids)
}

// whole is the offer of all of the ticket that tests have.
func whole() upstream.TicketOffer {
	return upstream.TicketOffer{
		Ticket: []byte(ticket), Tokens: 109, BlockSize: 32, PromptIDs: idsOf(109),
		Holder: &upstream.Instance{Name: "d", BaseURL: "http://10.0.0.2:8200", KVHost: "pin"},
	}
}

// handBackBody is the body of the leg for an offer, by its members.
func handBackBody(t *testing.T, offer upstream.TicketOffer, model, salt string) map[string]json.RawMessage {
	t.Helper()
	leg, err := Connector{}.HandBack(offer, model, salt)
	if err != nil || leg.API != body.Text {
		t.Fatalf("got %+v, %v, want a text completion", leg, err)
	}
	if _, err := rawjson.ParseObject(leg.Body); err != nil { // is stricter than what follows
		t.Fatalf("%s: %v", leg.Body, err)
	}
	var body map[string]json.RawMessage
	must(t, json.Unmarshal(leg.Body, &body))
	return body
}

func TestHandBack_IsTheLegThatWasMeasured(t *testing.T) {
	offer := whole()
	body := handBackBody(t, offer, "m", "")
	for name, want := range map[string]string{
		"model": `"m"`, "stream": "true", "max_tokens": "64", "ignore_eos": "true", "temperature": "0", "return_token_ids": "true",
		"stream_options": `{"include_usage":true,"continuous_usage_stats":true}`, "prompt": string(offer.PromptIDs),
		"kv_transfer_params": strings.Replace(ticket, "127.0.0.1", "10.0.0.2", 1),
	} {
		if string(body[name]) != want {
			t.Errorf("%s: got %s, want %s", name, body[name], want)
		}
		delete(body, name)
	}
	if len(body) > 0 {
		t.Errorf("got %v beside what was measured", slices.Collect(maps.Keys(body)))
	}
}

func TestHandBack_NamesModelAndSaltAsTheyAre(t *testing.T) {
	for _, name := range []string{"", "m", `a"b\c`, "</script>&", "模型\u2028\n\x00", `","prompt":[1],"x":"`} {
		body := handBackBody(t, whole(), name, name)
		var model, salt string
		if err := errors.Join(json.Unmarshal(body["model"], &model), json.Unmarshal(body["cache_salt"], &salt)); (name != "" && err != nil) || model != name || salt != name {
			t.Errorf("%q: got model %s, salt %s, %v", name, body["model"], body["cache_salt"], err)
		}
		if _, has := body["cache_salt"]; has != (name != "") {
			t.Errorf("%q: got a salt %t", name, has)
		}
		if ids := idsOf(109); !bytes.Equal(body["prompt"], ids) {
			t.Errorf("%q: got the prompt %s", name, body["prompt"])
		}
	}
}

func TestHandBack_OfWhatIsNotWholeIsRefused(t *testing.T) {
	type offer = upstream.TicketOffer
	twoGroups := with(t, ticket, "remote_block_ids", "[[1,2,3,4],[5,6,7,8]]")
	_, prefillAnswer := exchange(t, "01-prefill-turn1.json")
	for name, change := range map[string]func(o *offer){
		"no ticket":            func(o *offer) { o.Ticket = nil },
		"prefill's own params": func(o *offer) { o.Ticket = prefillAnswer },
		"no ids":               func(o *offer) { o.PromptIDs = nil },
		"an id too few":        func(o *offer) { o.PromptIDs = idsOf(108) },
		"ids and more":         func(o *offer) { o.PromptIDs = append(idsOf(109), `,"stream":false`...) },
		"ids that are cut":     func(o *offer) { o.PromptIDs = o.PromptIDs[:len(o.PromptIDs)-1] },
		"a part of it":         func(o *offer) { o.Tokens = 96 },
		"a release":            func(o *offer) { o.Release = true },
		"several groups":       func(o *offer) { o.Ticket, o.BlockSize = []byte(twoGroups), 0 },
		"a block too few":      func(o *offer) { o.Ticket = []byte(with(t, ticket, "remote_block_ids", "[[1,2,3]]")) },
	} {
		changed := whole()
		change(&changed)
		if leg, err := (Connector{}).HandBack(changed, "m", "s"); err == nil || !reflect.ValueOf(leg).IsZero() || len(err.Error()) > 200 {
			t.Errorf("%s: got %s, %v, want an error and nothing to send", name, leg.Body, err)
		}
	}
}

func TestHandBack_IsForLoneConnectors(t *testing.T) {
	for _, among := range []bool{false, true} {
		c := Connector{Among: among}
		traits := c.Traits()
		leg, err := c.HandBack(whole(), "m", "")
		if !traits.Reuses || traits.HandsBack == among || (err == nil) == among || (leg.Body == nil) != among {
			t.Errorf("among others %t: got %+v, a leg of %d bytes, %v", among, traits, len(leg.Body), err)
		}
	}
}
