package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// modes are the ways in which MoRI-IO engines hand KV over.
func modes(t *testing.T, run func(t *testing.T, as speaking)) {
	t.Helper()
	for _, read := range []bool{true, false} {
		t.Run(fmt.Sprintf("read=%t", read), func(t *testing.T) {
			t.Parallel()
			run(t, speaking{connector: config.ConnectorMoRIIO, read: read})
		})
	}
}

func TestRegistered_DecodeHasTheKVOfPrefill(t *testing.T) {
	for name, as := range speakers() {
		t.Run(name, func(t *testing.T) {
			fourKinds(t, func(t *testing.T, ask func(string) map[string]any) {
				r := startRegistered(t, registeredConfig{as: as})
				const want = "The harbour keeps every letter."
				r.over(t, ask(longText(2)+" SAY "+want), want)
				total := r.sum(t, config.RoleDecode)
				if total["computed_tokens"] > 1 || total["loads"] != 1 {
					t.Errorf("decode computed %d prompt tokens after %d loads, want at most the last one", total["computed_tokens"], total["loads"])
				}
				r.settled(t, pins{}, 0)
			})
		})
	}
}

func TestMoRIIO_ConversationsGoOn(t *testing.T) {
	modes(t, func(t *testing.T, as speaking) {
		r := startRegistered(t, registeredConfig{as: as, prefills: 2, decodes: 2})
		var group sync.WaitGroup
		for n := range 6 {
			group.Go(func() {
				d := foretold{operated: r.operated, id: fmt.Sprint("c", n), stream: n%2 == 0}
				for range 3 {
					a, rec := d.say(t, longText(1))
					if rec.End.Err != nil || !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode;") || a.reuse() != "miss;reason=ineligible_connector" {
						t.Errorf("%s: X-KV-Path %q, X-KV-Reuse %q, %v", d.id, a.header.Get("X-KV-Path"), a.reuse(), rec.End.Err)
					}
				}
			})
		}
		group.Wait()
		r.settled(t, pins{}, 0)
	})
}

// A token of the client's that would end prefill's answer must not have it throw the KV away.
func TestMoRIIO_AStopTokenThatComesFirst(t *testing.T) {
	modes(t, func(t *testing.T, as speaking) {
		r := startRegistered(t, registeredConfig{as: as})
		plain := saying("Yes.")
		plain["return_token_ids"] = true
		a, _ := r.send(t, "", plain)
		first := gjson.GetBytes(a.raw, "choices.0.token_ids.0").Int()
		for _, members := range []map[string]any{{"stop_token_ids": []int64{first}}, {"stop": []string{"Y"}}} {
			for name, value := range plain {
				members[name] = value
			}
			a, rec := r.send(t, "", members)
			finish := gjson.GetBytes(a.raw, "choices.0.finish_reason").String()
			if a.status != http.StatusOK || a.content != "" || finish != "stop" || rec.Retries != 0 {
				t.Errorf("%v: got status %d, %q, finish %q, %d retries (%v)", members, a.status, a.content, finish, rec.Retries, rec.End.Err)
			}
		}
		r.settled(t, pins{}, 0)
	})
}

// Ranks behind one address have KV of their own: decode has to be told of the one that the prefill leg went to.
func TestMoRIIO_TwoDataParallelRanks(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, as speaking) {
		r := startRegistered(t, registeredConfig{as: as})
		prefill, decode := startRanks(t, r, config.RolePrefill), startRanks(t, r, config.RoleDecode)
		for _, one := range []*vllmsim.Instance{r.prefill[0], r.decode[0]} {
			if err := one.SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
				t.Fatal(err)
			}
		}
		r.prefill, r.decode = []*vllmsim.Instance{prefill}, []*vllmsim.Instance{decode}
		r.await(t, r.prefill, r.decode)
		r.look()
		seen := map[string]int{}
		for n := range 12 {
			want := fmt.Sprintf("Letter %d.", n)
			r.over(t, map[string]any{"model": "sim", "max_tokens": 50, "messages": []json.RawMessage{question(longText(n%3+1) + " SAY " + want)}}, want)
		}
		for _, instance := range []*vllmsim.Instance{prefill, decode} {
			for _, request := range instance.Requests() {
				if strings.HasSuffix(request.Path, "/completions") {
					seen[request.Header.Get("X-Data-Parallel-Rank")]++
				}
			}
		}
		if seen["0"]+seen["1"] != 24 || seen["0"] == 0 || seen["1"] == 0 {
			t.Errorf("legs by rank: %v, want 24 on both", seen)
		}
		r.settled(t, pins{}, 0)
	})
}

// startRanks starts an instance with two ranks, whose ports follow each other.
func startRanks(t *testing.T, r *registered, role string) *vllmsim.Instance {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Connector, cfg.Role, cfg.TimeScale, cfg.MoRIIO.Read, cfg.DPRanks = config.ConnectorMoRIIO, role, announcesFaster, r.as.read, 2
	cfg.Registration.Proxy = r.address
	for range 50 { // another process may have the second port
		probe, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := probe.Addr().(*net.TCPAddr).Port
		_ = probe.Close() // its port is wanted
		instance, err := vllmsim.StartAt(cfg, "127.0.0.1:0", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			t.Cleanup(func() { _ = instance.Close() })
			return instance
		}
	}
	t.Fatal("no two ports that follow each other")
	return nil
}

// Engines of two modes can't hand anything over, and decode serves nothing alone.
func TestMoRIIO_ModesThatDiffer(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, as speaking) {
		other := as
		other.read = !as.read
		r := startRegistered(t, registeredConfig{as: as})
		prefill := r.instance(t, config.RolePrefill, registeredConfig{as: other})
		if err := r.prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
			t.Fatal(err)
		}
		r.prefill = []*vllmsim.Instance{prefill}
		r.await(t, r.prefill, r.decode)
		r.look()
		a, rec := r.send(t, "", saying("Yes."))
		if a.status != http.StatusServiceUnavailable || a.code != "prefill_unavailable" || len(rec.Legs) > 0 {
			t.Errorf("got status %d, code %q after %d legs, want 503 and none (%v)", a.status, a.code, len(rec.Legs), rec.End.Err)
		}
		if rec.End.Err == nil || !strings.Contains(rec.End.Err.Error(), "transfer_mode") {
			t.Errorf("the log says %v, want why", rec.End.Err)
		}
		r.settled(t, pins{}, 0)
	})
}

// What prefill can't share with decode is refused: decode would wait for ever, end, or answer from memory that nobody has written.
func TestRegistered_DecodeServesNothingAlone(t *testing.T) {
	t.Parallel()
	for name, as := range speakers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRegistered(t, registeredConfig{as: as, text: "routing: {disagg_threshold: 100000}\n"})
			r.over(t, saying("Yes."), "Yes.")
			refused := []map[string]any{{"n": 2}, {"use_beam_search": true}}
			if as.connector == config.ConnectorMoRIIO {
				refused = append(refused, map[string]any{"new_member": 1}) // of which nobody knows whether it shapes the prompt
			}
			for _, members := range refused {
				for name, value := range saying("Yes.") {
					members[name] = value
				}
				a, rec := r.send(t, "", members)
				if a.status != http.StatusBadRequest || a.code != "not_disaggregable" || len(rec.Legs) > 0 {
					t.Errorf("%v: got status %d, code %q after %d legs", members, a.status, a.code, len(rec.Legs))
				}
			}
			r.settled(t, pins{}, 0)
		})
	}
}

func TestRegistered_ClientSentParamsAreRefused(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{as: speaking{connector: config.ConnectorMoRIIO}})
	members := saying("Yes.")
	members["kv_transfer_params"] = map[string]any{"do_remote_prefill": true, "transfer_id": "x"}
	if a, rec := r.send(t, "", members); a.status != http.StatusBadRequest || len(rec.Legs) > 0 {
		t.Errorf("got status %d after %d legs", a.status, len(rec.Legs))
	}
	a, _ := r.post(t.Context(), "/v1/chat/completions", http.Header{"X-Request-Id": {"___prefill_addr_10.0.0.1:1___decode_addr_10.0.0.1:1_" + strings.Repeat("0", 32)}},
		encode(saying("Yes.")), unwatched)
	if a == nil || a.status != http.StatusOK || a.content != "Yes." {
		t.Errorf("a client's id with addresses: got %+v", a)
	}
	for _, leg := range r.prefill[0].Requests() {
		if strings.Contains(leg.Header.Get("X-Request-Id"), "10.0.0.1") {
			t.Errorf("an engine was sent the id %s", leg.Header.Get("X-Request-Id"))
		}
	}
	r.settled(t, pins{}, 0)
}

// shifted has prefill compute another prompt than decode.
type shifted struct{ server.Connector }

// Plan implements server.Connector.
func (c shifted) Plan(t upstream.Transfer) (upstream.Plan, error) {
	plan, err := c.Connector.Plan(t)
	if err != nil {
		return plan, err
	}
	plan.Check = nil
	for i, m := range plan.Prefill.Members {
		if m.Name == "kv_transfer_params" {
			plan.Prefill.Members[i].Value = []byte(strings.Replace(string(m.Value), `"prompt_token_ids":[`, `"prompt_token_ids":[300,`, 1))
		}
	}
	return plan, nil
}

func TestMutant_MoRIIOLegsOfOtherIDsAreNoticed(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{
		as: speaking{connector: config.ConnectorMoRIIO}, replace: func(d *server.Deps) { d.Connector = shifted{d.Connector} },
	})
	a, _ := r.send(t, "", saying("Yes."))
	if n := r.wrong(t); n == 0 || a.content == "Yes." {
		t.Errorf("got %q and %d wrong reads, want another answer and some", a.content, n)
	}
}

// separable is a connector that says that decode serves requests alone.
type separable struct{ server.Connector }

// Traits implements server.Connector.
func (c separable) Traits() upstream.Traits {
	traits := c.Connector.Traits()
	traits.NeedsPrefill = false
	return traits
}

func TestMutant_DecodeAloneIsNoticed(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{
		as: speaking{connector: config.ConnectorMoRIIO, read: true}, replace: func(d *server.Deps) { d.Connector = separable{d.Connector} },
	})
	if err := r.prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultStatus}); err != nil {
		t.Fatal(err)
	}
	a, _ := r.send(t, "", saying("Yes."))
	if n := r.wrong(t); n == 0 || a.content == "Yes." {
		t.Errorf("got %q and %d wrong reads, want another answer and some", a.content, n)
	}
}

func TestMoRIIO_ThirtyTurnsAtOnce(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{as: speaking{connector: config.ConnectorMoRIIO}, prefills: 2, decodes: 2})
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

// The engine ids of answers are the request's, addresses and all; a client gets the turn's.
func TestMoRIIO_ClientsAreToldNoAddresses(t *testing.T) {
	modes(t, func(t *testing.T, as speaking) {
		r := startRegistered(t, registeredConfig{as: as})
		for _, stream := range []bool{false, true} {
			members := saying("Yes.")
			members["stream"] = stream
			a, rec := r.send(t, "", members)
			for _, instance := range append(r.prefill, r.decode...) {
				if strings.Contains(string(a.raw), instance.Addresses().KV) || strings.Contains(fmt.Sprint(a.header), instance.Addresses().KV) {
					t.Errorf("the client gets %v %s", a.header, a.raw)
				}
			}
			if !strings.Contains(string(a.raw), `"id":"chatcmpl-`) || a.content != "Yes." || len(rec.Legs) != 2 {
				t.Errorf("got %s after %d legs", a.raw, len(rec.Legs))
			}
		}
		r.settled(t, pins{}, 0)
	})
}
