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
	if err != nil {
		t.Fatal(err)
	}
	got, err := Lone(t.Context(), DefaultConfig(), wire.PathChat, raw)
	if err != nil {
		t.Fatal(err)
	}
	var lone answer
	if err := json.Unmarshal(got, &lone.body); err != nil {
		t.Fatal(err)
	}
	if lone.text() != reply.text() {
		t.Errorf("alone %q, as a turn %q", lone.text(), reply.text())
	}
	if _, err := Lone(t.Context(), DefaultConfig(), wire.PathChat, []byte(`{}`)); err == nil {
		t.Error("a refused request is no error")
	}
}
