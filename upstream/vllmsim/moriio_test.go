package vllmsim

import (
	"context"
	"net/http"
	"testing"
	"time"

	"carryover/upstream/vllmsim/wire"
)

// startMoRIIO starts a pair in one of the modes.
func startMoRIIO(t *testing.T, read bool) addressed {
	t.Helper()
	return startAddressed(t, ConnectorMoRIIO, func(c *Config) { c.MoRIIO.Read = read })
}

// prefillLeg and decodeLeg are the params of a transfer in WRITE mode, and of prefill's leg in READ mode.
func prefillLeg(transfer string) object {
	return object{"kv_transfer_params": object{"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil,
		"remote_block_ids": nil, "remote_dp_size": 1, "remote_tp_size": 1, "transfer_id": transfer}}
}

func decodeLeg(transfer string) object {
	return object{"kv_transfer_params": object{"do_remote_decode": false, "do_remote_prefill": true, "remote_engine_id": nil,
		"remote_block_ids": nil, "remote_dp_size": 1, "remote_tp_size": 1, "transfer_id": transfer}}
}

func TestMoRIIO_DecodeReadsWhatPrefillAnswers(t *testing.T) {
	a := startMoRIIO(t, true)
	q := question(longText)
	p := postAs(t, a.p, a.id(someTail), with(with(q, prefillLeg("tx-1")), object{"max_tokens": 1}))
	params := p.params()
	if p.status != http.StatusOK || params["transfer_id"] != "tx-1" || len(params["remote_block_ids"].([]any)) == 0 || a.p.Stats().LeasedPins != 1 {
		t.Fatalf("prefill answered %d %s", p.status, p.raw)
	}
	d := postAs(t, a.d, a.id(someTail), with(q, object{"kv_transfer_params": params}))
	if d.status != http.StatusOK || d.text() != lone(t, q) || d.params() != nil {
		t.Errorf("got %d %s", d.status, d.raw)
	}
	if s := a.p.Stats(); s.Reads != 1 || a.d.Stats().ComputedTokens != 1 {
		t.Errorf("%d reads, and decode computed %d tokens, want one of each", s.Reads, a.d.Stats().ComputedTokens)
	}
	a.wantQuiet(t)
	_ = postAs(t, a.d, a.id(someTail), with(q, object{"kv_transfer_params": params}))
	if a.p.Stats().DoubleReads != 1 {
		t.Errorf("%d double reads, want one", a.p.Stats().DoubleReads)
	}
}

func TestMoRIIO_PrefillWritesWhenDecodeHasRoom(t *testing.T) {
	for _, first := range []string{"prefill", "decode"} {
		t.Run(first, func(t *testing.T) {
			a := startMoRIIO(t, false)
			q := question(longText)
			ended := make(chan answer, 1) // one result
			begin := func(i *Instance, body object) {
				go func() { ended <- do(t, requestAs(t.Context(), t, i, a.id(someTail), body)) }()
			}
			prefill, decode := with(with(q, prefillLeg("tx-1")), object{"max_tokens": 1}), with(q, decodeLeg("tx-1"))
			if first == "prefill" {
				begin(a.p, prefill)
				if p := <-ended; p.status != http.StatusOK || p.params() == nil || a.p.Stats().LeasedPins != 1 {
					t.Fatalf("prefill answered %d %s", p.status, p.raw)
				}
				begin(a.d, decode)
			} else {
				begin(a.d, decode)
				eventually(t, "decode waits", func() bool { return a.d.Stats().Loading == 1 })
				if p := postAs(t, a.p, a.id(someTail), prefill); p.status != http.StatusOK {
					t.Fatalf("prefill answered %d %s", p.status, p.raw)
				}
			}
			if d := <-ended; d.status != http.StatusOK || d.text() != lone(t, q) {
				t.Errorf("got %d %s", d.status, d.raw)
			}
			// Prefill counts what it has pushed once decode has confirmed it; decode may have answered its client by then.
			eventually(t, "KV that was pushed", func() bool { return a.p.Stats().KVPushed == 1 })
			if d := a.d.Stats(); d.ExternalTokens == 0 || d.ComputedTokens != 1 {
				t.Errorf("decode took %d tokens and computed %d", d.ExternalTokens, d.ComputedTokens)
			}
			a.wantQuiet(t)
		})
	}
}

// A request that ends by a token is not handed over: decode waits in vain.
func TestMoRIIO_NothingIsKeptOfARequestThatStopped(t *testing.T) {
	for _, read := range []bool{true, false} {
		a := startMoRIIO(t, read)
		q := question(longText)
		first := post(t, startInstance(t, nil), wire.PathChat, with(q, object{"max_tokens": 1, "return_token_ids": true}))
		stop := object{"max_tokens": 1, "stop_token_ids": first.choice()["token_ids"]}
		p := postAs(t, a.p, a.id(someTail), with(with(q, prefillLeg("tx-1")), stop))
		if p.status != http.StatusOK || p.params() != nil || p.choice()["finish_reason"] != "stop" {
			t.Errorf("prefill answered %d %s", p.status, p.raw)
		}
		a.wantQuiet(t)
	}
}

// A decode engine counts on KV for each request.
func TestMoRIIO_DecodeCannotServeAlone(t *testing.T) {
	read := startMoRIIO(t, true)
	q := question(longText)
	if d := postAs(t, read.d, "turn", q); d.status != http.StatusOK || d.text() == lone(t, q) || read.d.Stats().CorruptReads != 1 {
		t.Errorf("READ: got %d %s with %d corrupt reads, want a wrong answer", d.status, d.raw, read.d.Stats().CorruptReads)
	}
	write := startMoRIIO(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := client().Do(requestAs(ctx, t, write.d, "turn", q))
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	eventually(t, "WRITE: decode waits for ever", func() bool { return write.d.Stats().Parked == 1 })
	cancel()
	<-ended
	write.wantQuiet(t)
	if p := postAs(t, write.p, "turn", q); p.status != http.StatusOK || p.text() != lone(t, q) {
		t.Errorf("a prefill engine can: got %d %s", p.status, p.raw)
	}
}

func TestMoRIIO_ModesThatDifferShow(t *testing.T) {
	a := startMoRIIO(t, true)
	_ = a.d.Close()
	a.d = startMoRIIO(t, false).d
	q := question(longText)
	p := postAs(t, a.p, a.id(someTail), with(with(q, prefillLeg("tx-1")), object{"max_tokens": 1}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := client().Do(requestAs(ctx, t, a.d, a.id(someTail), with(q, object{"kv_transfer_params": p.params()})))
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	eventually(t, "a decode engine that waits for a write", func() bool { return a.d.Stats().Loading == 1 })
	cancel()
	<-ended
	a.p.Advance(61 * time.Second)
	if s := a.p.Stats(); s.LeasesExpired != 1 || s.Pins != 0 {
		t.Errorf("%d leases expired, %d pins, want one and none: nobody has read", s.LeasesExpired, s.Pins)
	}
}

func TestMoRIIO_WhatRaisesEndsTheEngine(t *testing.T) {
	q := with(question(longText), object{"max_tokens": 1})
	for name, row := range map[string]struct {
		id   string
		body object
	}{
		"no transfer id":  {"", object{"kv_transfer_params": object{"do_remote_decode": true, "remote_block_ids": nil}}},
		"nobody is named": {"turn", prefillLeg("tx-1")},
		"no digits":       {"___prefill_addr_host:1.1.1.1,handshake:1,notify:2___decode_addr_host:1.1.1.1,handshake:1,notify:2_x", prefillLeg("tx-1")},
	} {
		a := startMoRIIO(t, false)
		if row.id == "" {
			row.id = a.id(someTail)
		}
		if p := postAs(t, a.p, row.id, with(q, row.body)); p.status != http.StatusInternalServerError || a.p.Stats().Deaths != 1 {
			t.Errorf("%s: got %d and %d deaths, want 500 and one", name, p.status, a.p.Stats().Deaths)
		}
	}
}

func TestMoRIIO_ALateWriteFindsNobody(t *testing.T) {
	a := startMoRIIO(t, false)
	q := question(longText)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := client().Do(requestAs(ctx, t, a.d, a.id(someTail), with(q, decodeLeg("tx-1"))))
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	eventually(t, "decode waits", func() bool { return a.d.Stats().Loading == 1 })
	cancel()
	<-ended
	eventually(t, "decode has let go", func() bool { return a.d.Stats().Running == 0 })
	if p := postAs(t, a.p, a.id(someTail), with(with(q, prefillLeg("tx-1")), object{"max_tokens": 1})); p.status != http.StatusOK {
		t.Errorf("prefill answered %d", p.status)
	}
	a.wantQuiet(t)
}
