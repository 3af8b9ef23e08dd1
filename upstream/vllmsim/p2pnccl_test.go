package vllmsim

import (
	"context"
	"net/http"
	"testing"
)

func TestP2PNCCL_DecodeTakesWhatPrefillPushes(t *testing.T) {
	a := startAddressed(t, ConnectorP2PNCCL, nil)
	q := question(longText)
	p := postAs(t, a.p, a.id(someTail), with(q, object{"max_tokens": 1}))
	if p.status != http.StatusOK || p.params() != nil || a.d.Stats().KVHeld != 1 {
		t.Fatalf("prefill answered %d %s, decode holds %d", p.status, p.raw, a.d.Stats().KVHeld)
	}
	d := postAs(t, a.d, a.id(someTail), q)
	if want := lone(t, q); d.status != http.StatusOK || d.text() != want {
		t.Fatalf("got %d %s, want %q", d.status, d.raw, want)
	}
	if s := a.d.Stats(); s.ExternalTokens == 0 || s.ComputedTokens != 1 {
		t.Errorf("decode took %d tokens and computed %d, want all but one taken", s.ExternalTokens, s.ComputedTokens)
	}
	a.wantQuiet(t)
}

// A decode leg before prefill's waits, and one for which nothing ever comes waits until it is taken back.
func TestP2PNCCL_DecodeWaits(t *testing.T) {
	a := startAddressed(t, ConnectorP2PNCCL, nil)
	q := question(longText)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan answer, 1) // one result
	go func() { ended <- do(t, requestAs(ctx, t, a.d, a.id(someTail), q)) }()
	eventually(t, "decode waits", func() bool { return a.d.Stats().Loading == 1 })
	if p := postAs(t, a.p, a.id(someTail), with(q, object{"max_tokens": 1})); p.status != http.StatusOK {
		t.Fatalf("prefill answered %d", p.status)
	}
	if d := <-ended; d.status != http.StatusOK || d.text() != lone(t, q) {
		t.Errorf("got %d %s", d.status, d.raw)
	}
	go func() {
		resp, err := client().Do(requestAs(ctx, t, a.d, a.id("1123456789abcdef0123456789abcdef"), question(longText+" And?")))
		if err == nil {
			_ = resp.Body.Close()
		}
		ended <- answer{}
	}()
	eventually(t, "decode waits", func() bool { return a.d.Stats().Loading == 1 })
	cancel()
	<-ended
	a.wantQuiet(t)
}

func TestP2PNCCL_OtherKVIsTakenAndShows(t *testing.T) {
	a := startAddressed(t, ConnectorP2PNCCL, nil)
	_ = postAs(t, a.p, a.id(someTail), with(question(longText), object{"max_tokens": 1}))
	q := question("Another " + longText)
	if d := postAs(t, a.d, a.id(someTail), q); d.status != http.StatusOK || d.text() == lone(t, q) || a.d.Stats().CorruptReads != 1 {
		t.Errorf("got %d %s with %d corrupt reads, want a wrong answer and one", d.status, d.raw, a.d.Stats().CorruptReads)
	}
}

func TestP2PNCCL_AnIDWithoutAddressesEndsTheEngine(t *testing.T) {
	a := startAddressed(t, ConnectorP2PNCCL, nil)
	for _, i := range []*Instance{a.p, a.d} {
		if got := postAs(t, i, "turn-1", question(longText)); got.status != http.StatusInternalServerError || i.Stats().Deaths != 1 {
			t.Errorf("got %d and %d deaths, want 500 and one", got.status, i.Stats().Deaths)
		}
	}
}

func TestP2PNCCL_KVThatNobodyTakesStays(t *testing.T) {
	a := startAddressed(t, ConnectorP2PNCCL, nil)
	_ = postAs(t, a.p, a.id(someTail), with(question(longText), object{"max_tokens": 1}))
	a.d.Advance(1000 * 1e9)
	if held := a.d.Stats().KVHeld; held != 1 {
		t.Errorf("decode holds the KV of %d prompts, want that of one for ever", held)
	}
	a.d.Restart()
	if held := a.d.Stats().KVHeld; held != 0 {
		t.Errorf("decode holds %d after a restart", held)
	}
}
