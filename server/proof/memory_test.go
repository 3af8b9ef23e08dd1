package proof

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// A leg may be on its way of an attempt that has ended otherwise than with decode's answer. The memory of its ids serves no other prompt,
// though that of an attempt whose answer has begun does.
func TestIDs_OnlyAnAnswerGivesTheirMemoryAway(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"count":3,"tokens":[1,2,3]}`)
	}))
	defer engine.Close()
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: time.Second})
	defer client.Close()
	instance, err := upstream.NewInstance(upstream.RolePrefill, "p", engine.URL)
	must(t, err)
	engines := fleet.New(fleet.Config{Client: client, AskLimit: 10 * time.Second})
	engines.Set([]upstream.Instance{instance})
	incarnation := engines.Engine(upstream.RolePrefill, "p").Fresh()
	req, err := body.ParseRequest(body.Text, []byte(`{"prompt":"x"}`))
	must(t, err)
	asked := func() facts.Prompt {
		t.Helper()
		prompt, err := incarnation.Prompts.Read(t.Context(), req, "")
		must(t, err)
		return prompt
	}
	var k *IDs
	for name, row := range map[string]struct {
		end   func()
		gives bool
	}{
		"nothing was to be used":    {func() { k.Forward(false) }, false},
		"the ticket was given up":   {func() { k.Forward(true); k.Forward(false) }, false},
		"and the answer has begun":  {func() { k.Forward(true); k.Forward(false); k.turn.Drop() }, false},
		"another attempt has begun": {func() { k.Forward(true); k.turn.ids = newIDs(k.turn); k.turn.Drop() }, false},
		"prefill has rendered": {func() {
			k.Forward(true)
			k.set(facts.Prompt{IDs: []uint32{9}, List: []byte("[9]")})
			k.turn.Drop()
		}, false},
		"decode's answer has begun":    {func() { k.Forward(true); k.turn.Drop() }, true},
		"and the answer goes on":       {func() { k.Forward(true); k.turn.Drop(); k.turn.Drop() }, true},
		"the same with a chain to end": {func() { k.Forward(true); k.Grow(2); k.turn.Drop(); k.Add(nil, []byte("[4]")) }, true},
	} {
		given := false
		for range 40 { // a pool may lose what it gets
			k = attemptOf(t)
			k.turn.ids = k
			prompt := asked()
			k.compare(prompt)
			ids := prompt.IDs
			row.end()
			one, two := asked(), asked()
			if &one.IDs[0] == &two.IDs[0] {
				t.Fatalf("%s: two prompts have one memory", name)
			}
			given = given || &one.IDs[0] == &ids[0] || &two.IDs[0] == &ids[0]
		}
		if given != row.gives {
			t.Errorf("%s: its memory serves another prompt: %t, want %t", name, given, row.gives)
		}
	}
}
