package api

import (
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

// checkModel refuses models that are not served. The message follows recording 15; no recording shows how it joins several names.
func (s *Endpoints) checkModel(model string) error {
	cfg := s.config()
	if model == "" || slices.Contains(cfg.Served(), model) || slices.Contains(cfg.Adapters, model) {
		return nil
	}
	return &wire.Error{Status: http.StatusNotFound, Kind: "NotFoundError", Param: "model",
		Message: "The model `" + model + "` does not exist. Valid aliases: " + strings.Join(cfg.Served(), ", ") + "."}
}

type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen *int              `json:"max_model_len"` // null for adapters
	Permission  []modelPermission `json:"permission"`
}

type modelPermission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

// models lists the served names and behind them the adapters, as show_available_models does.
func (s *Endpoints) models() modelList {
	cfg, created := s.config(), s.engines()[0].Started.Unix()
	card := func(id, root string) modelCard {
		return modelCard{ID: id, Object: "model", Created: created, OwnedBy: "vllm", Root: root, Permission: []modelPermission{{
			ID: "modelperm-" + wire.RandomHex(8), Object: "model_permission", Created: created,
			AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
		}}}
	}
	list := modelList{Object: "list"}
	for _, name := range cfg.Served() {
		c := card(name, cfg.ModelPath)
		c.MaxModelLen = &cfg.MaxModelLen
		list.Data = append(list.Data, c)
	}
	for _, name := range cfg.Adapters {
		c := card(name, "adapters/"+name)
		c.Parent = &cfg.Model
		list.Data = append(list.Data, c)
	}
	return list
}
