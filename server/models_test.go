package server

import (
	"encoding/json"
	"strings"
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

func TestNoModel_IsShapedAsVLLMShapesIt(t *testing.T) {
	want := "{\"error\":{\"message\":\"The model `x` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":\"model_not_found\"}}"
	if e := noModel("x"); string(e.body()) != want || e.Status != 404 {
		t.Errorf("got %d %s, want 404 %s", e.Status, e.body(), want)
	}
	if e := noModel(strings.Repeat("é", 1<<20)); len(e.Message) > 300 || !json.Valid(e.body()) {
		t.Errorf("got a message of %d bytes", len(e.Message))
	}
}
