package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

func TestP2PNCCL_ThirtyTurnsAtOnce(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{as: speaking{connector: config.ConnectorP2PNCCL}, prefills: 2, decodes: 2})
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			want := fmt.Sprintf("Letter %d.", n)
			r.over(t, map[string]any{
				"model": "sim", "max_tokens": 50, "stream": n%2 == 0, "messages": []json.RawMessage{question(longText(n%3+1) + " SAY " + want)},
			}, want)
		})
	}
	group.Wait()
	if pushed := r.sum(t, config.RolePrefill)["kv_pushed"]; pushed != 30 {
		t.Errorf("the KV of %d prompts was pushed, want that of 30", pushed)
	}
	r.settled(t, pins{}, 0)
}

// Legs carry no ids, so that prompts need not be text.
func TestP2PNCCL_PromptsWithImages(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{as: speaking{connector: config.ConnectorP2PNCCL}})
	image := map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64,iVBORw0KGgo="}}
	a, rec := r.send(t, "", map[string]any{"model": "sim", "max_tokens": 50, "messages": []any{
		map[string]any{"role": "user", "content": []any{image, map[string]any{"type": "text", "text": longText(1) + " SAY A lamp."}}},
	}})
	if a.status != http.StatusOK || a.content != "A lamp." {
		t.Errorf("got status %d, %q (%v)", a.status, a.content, rec.Err)
	}
	r.settled(t, pins{}, 0)
}

// The engine ids of answers are the request's, addresses and all; a client gets the turn's.
func TestP2PNCCL_ClientsAreToldNoAddresses(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{as: speaking{connector: config.ConnectorP2PNCCL}})
	for _, stream := range []bool{false, true} {
		members := saying("Yes.")
		members["stream"] = stream
		a, rec := r.send(t, "", members)
		for _, instance := range append(r.prefill, r.decode...) {
			if strings.Contains(string(a.raw), instance.KVAddress()) || strings.Contains(fmt.Sprint(a.header), instance.KVAddress()) {
				t.Errorf("the client gets %v %s", a.header, a.raw)
			}
		}
		if !strings.Contains(string(a.raw), `"id":"chatcmpl-`) || a.content != "Yes." || len(rec.Legs) != 2 {
			t.Errorf("got %s after %d legs", a.raw, len(rec.Legs))
		}
	}
	r.settled(t, pins{}, 0)
}

// anonymous sends the turn's own id, which names nobody.
type anonymous struct{ server.Connector }

// Plan implements server.Connector.
func (c anonymous) Plan(t upstream.Transfer) (upstream.Plan, error) {
	plan, err := c.Connector.Plan(t)
	plan.Prefill.RequestID = ""
	return plan, err
}

func TestMutant_P2PNCCLWithoutAddressesIsNoticed(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{
		as: speaking{connector: config.ConnectorP2PNCCL}, replace: func(d *server.Deps) { d.Connector = anonymous{d.Connector} },
	})
	if a, _ := r.send(t, "", saying("Yes.")); a.status == http.StatusOK {
		t.Errorf("got %q", a.content)
	}
	if n := r.wrong(t); n == 0 {
		t.Error("no engine has died of it")
	}
}

// lagging has two attempts share one request id, so that the second takes the KV of the first.
type lagging struct{ server.Connector }

// Plan implements server.Connector.
func (c lagging) Plan(t upstream.Transfer) (upstream.Plan, error) {
	t.RequestID = strings.Repeat("0", 32)
	return c.Connector.Plan(t)
}

func TestMutant_P2PNCCLWithOneIDForAllIsNoticed(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{
		as: speaking{connector: config.ConnectorP2PNCCL}, replace: func(d *server.Deps) { d.Connector = lagging{d.Connector} }, flags: []string{"--first-byte-timeout", "5s"},
	})
	if err := r.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultSlowHeaders, Delay: time.Second}); err != nil {
		t.Fatal(err)
	}
	// Which KV is under the id when the first of them reads is a matter of luck; the others wait in vain.
	for round := 0; round < 8 && r.wrong(t) == 0; round++ {
		var group sync.WaitGroup
		for n := range 8 {
			group.Go(func() {
				r.send(t, "", map[string]any{"model": "sim", "max_tokens": 9, "messages": []json.RawMessage{question(fmt.Sprint(n, longText(n%3+1)))}})
			})
		}
		group.Wait()
	}
	if r.wrong(t) == 0 {
		t.Error("no turn has read the KV of another")
	}
}
