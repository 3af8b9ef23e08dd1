package facts

import (
	"bytes"

	"carryover/sse/rawjson"
)

// vLLM writes 440 bytes per model, LoRA adapters included.
const (
	MaxModelList    = 4 << 20
	maxListedModels = 1024
	maxModelID      = 512
)

// Model is one model that engines serve.
type Model struct {
	ID     string
	Card   []byte // the entry of /v1/models, as an engine wrote it; callers must not change it
	length int    // max_model_len, 0 if the entry has none
}

// ParseModels parses the answer of /v1/models: {"object": "list", "data": [{"id": …}, …]}. Of entries with equal ids
// the first counts. Any other text, or one beyond the bounds, is nil as a whole: half a list would refuse turns.
func ParseModels(list []byte) []Model {
	answer, err := rawjson.ParseObject(list)
	data := answer.Get("data")
	if err != nil || rawjson.Kind(data) != '[' {
		return nil
	}
	models, seen := []Model{}, map[string]bool{}
	for raw := range rawjson.Elements(data) {
		card, err := rawjson.ParseObject(raw)
		id, ok := rawjson.Text(card.Get("id"))
		if err != nil || !ok || id == "" || len(id) > maxModelID || len(seen) == maxListedModels {
			return nil
		}
		if !seen[id] {
			seen[id] = true
			length, _ := rawjson.GetInt(raw, "max_model_len")
			models = append(models, Model{ID: id, Card: bytes.Clone(raw), length: max(length, 0)})
		}
	}
	return models
}
