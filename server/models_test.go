package server

import (
	"encoding/json"
	"testing"

	"carryover/upstream/fleet/facts"
)

func TestModelList_KeepsCardsAsEnginesWriteThem(t *testing.T) {
	a, b := `{"id":"a","max_model_len":4096,"owned_by":"vllm","x":1.0}`, `{"id":"b","parent":"a"}`
	for want, models := range map[string][]facts.Model{
		`{"object":"list","data":[` + a + `,` + b + `]}`: {{ID: "a", Card: []byte(a)}, {ID: "b", Card: []byte(b)}},
		`{"object":"list","data":[` + a + `]}`:           {{ID: "a", Card: []byte(a)}},
	} {
		if got := string(modelList(models)); got != want || !json.Valid([]byte(got)) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
