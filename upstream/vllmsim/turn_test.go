package vllmsim

import (
	"slices"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

func TestTurns_PrefillReadsDecode(t *testing.T) {
	p, d := startPair(t, nil)
	lone := startInstance(t, nil)
	messages := []any{user(longText)}
	_, first := turn(t, p, d, messages, nil, nil)
	messages = then(messages, first)
	prefill, second := turn(t, p, d, messages, first.params(), object{"cache_salt": "fresh"})

	cached := prefill.params()["remote_prefill_cached_tokens"]
	if want := first.params()["remote_num_tokens"]; cached != want {
		t.Errorf("prefill reused %v tokens of the ticket, want %v", cached, want)
	}
	alone := post(t, lone, wire.PathChat, object{"model": "sim", "messages": messages})
	if second.text() != alone.text() {
		t.Errorf("answer over the transfer %q, alone %q", second.text(), alone.text())
	}
	ps, ds := p.Stats(), d.Stats()
	if ps.CorruptReads+ds.CorruptReads+ps.DoubleReads+ds.DoubleReads != 0 {
		t.Errorf("prefill %+v decode %+v: want no corrupt and no double reads", ps, ds)
	}
	if ps.Pins != 0 || ds.Pins != 1 || ds.Reads != 1 {
		t.Errorf("pins: prefill %d, decode %d with %d read; want 0, 1, 1", ps.Pins, ds.Pins, ds.Reads)
	}
	if got := ids(prefill.body["prompt_token_ids"]); !slices.Equal(got[:int(cached.(float64))], slices.Concat(ids(first.body["prompt_token_ids"]), ids(first.choice()["token_ids"]))[:int(cached.(float64))]) {
		t.Error("the second prompt does not begin with what decode holds")
	}
	t.Logf("%s", second.text())
}
