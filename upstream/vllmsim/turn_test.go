package vllmsim

import (
	"slices"
	"testing"
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
	alone := chat(t, lone, object{"model": "sim", "messages": messages})
	if second.text() != alone.text() {
		t.Errorf("answer over the transfer %q, alone %q", second.text(), alone.text())
	}
	ps, ds := p.Stats(), d.Stats()
	if ps.CorruptReads+ds.CorruptReads+ps.DoubleReads+ds.DoubleReads != 0 {
		t.Errorf("prefill %+v decode %+v: want no corrupt and no double reads", ps, ds)
	}
	expect(t, p, counts{"Pins": 0})
	expect(t, d, counts{"Pins": 1, "Reads": 1})
	if got := ids(prefill.body["prompt_token_ids"]); !slices.Equal(got[:int(cached.(float64))], slices.Concat(ids(first.body["prompt_token_ids"]), ids(first.choice()["token_ids"]))[:int(cached.(float64))]) {
		t.Error("the second prompt does not begin with what decode holds")
	}
	t.Logf("%s", second.text())
}
