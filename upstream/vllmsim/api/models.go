package api

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/kv"
	"carryover/upstream/vllmsim/wire"
)

// weights returns the seed of a model's weights. An adapter changes it, so its KV differs for equal tokens.
func weights(c *config.Config, model string) uint64 {
	if !slices.Contains(c.Adapters, model) {
		return c.Seed
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(model)) // never fails
	return kv.Mix(c.Seed ^ h.Sum64())
}

// checkModel refuses models that are not served. The message follows recording 15. No recording shows how it joins several names.
func (s *Endpoints) checkModel(model string) error {
	cfg := s.config()
	if model == "" || slices.Contains(cfg.Served(), model) || slices.Contains(cfg.Adapters, model) {
		return nil
	}
	return &wire.Error{Status: http.StatusNotFound, Kind: "NotFoundError", Param: "model",
		Message: "The model `" + model + "` does not exist. Valid aliases: " + strings.Join(cfg.Served(), ", ") + "."}
}

const modelCard = `{"id":%s,"object":"model","created":%d,"owned_by":"vllm","root":%s,"parent":%s,"max_model_len":%s,"permission":[{"id":"modelperm-%s",` +
	`"object":"model_permission","created":%[2]d,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,` +
	`"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}`

// models lists the served names and then the adapters, as show_available_models does.
func (s *Endpoints) models() any {
	cfg, data := s.config(), []json.RawMessage{}
	card := func(id, root string, parent, longest any) {
		data = append(data, json.RawMessage(fmt.Sprintf(modelCard, wire.RawJSON(id), s.engines()[0].Started.Unix(), wire.RawJSON(root), wire.RawJSON(parent), wire.RawJSON(longest), wire.RandomHex(8))))
	}
	for _, name := range cfg.Served() {
		card(name, cfg.ModelPath, nil, cfg.MaxModelLen)
	}
	for _, name := range cfg.Adapters {
		card(name, "adapters/"+name, cfg.Model, nil)
	}
	return struct {
		Object string            `json:"object"`
		Data   []json.RawMessage `json:"data"`
	}{"list", data}
}
