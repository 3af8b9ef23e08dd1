package vllmsim

import (
	"encoding/json"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

func TestLone_IsWhatARightTurnSays(t *testing.T) {
	p, d := startPair(t, nil)
	messages := []any{user(longText)}
	_, reply := turn(t, p, d, messages, nil, nil)
	raw, err := json.Marshal(object{"model": "sim", "messages": messages})
	must(t, err)
	got, err := Lone(t.Context(), DefaultConfig(), wire.PathChat, raw)
	must(t, err)
	var lone answer
	must(t, json.Unmarshal(got, &lone.body))
	if lone.text() != reply.text() {
		t.Errorf("alone %q, as a turn %q", lone.text(), reply.text())
	}
	if _, err := Lone(t.Context(), DefaultConfig(), wire.PathChat, []byte(`{}`)); err == nil {
		t.Error("a refused request is no error")
	}
}
