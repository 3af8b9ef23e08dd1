package fleet

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"

	"carryover/sse/rawjson"
)

// Bounds of a list of models. vLLM writes 440 bytes for each, LoRA adapters included.
const (
	maxModelList    = 4 << 20
	maxListedModels = 1024
	maxModelID      = 512
)

// Model is one model that engines serve.
type Model struct {
	ID   string
	Card []byte // the entry of /v1/models, as an engine wrote it; not to be changed
}

// modelSet is the set of model ids of a list. Engines with equal lists share one set, so that a pick looks its model
// up once and not in a thousand lists.
type modelSet struct {
	ids    map[string]struct{}
	digest [sha256.Size]byte

	// The answer for the pick with number round. The Fleet's lock guards both.
	round  uint64
	serves bool
}

var errModelList = errors.New("not a list of models")

// parseModels parses the answer of /v1/models: {"object": "list", "data": [{"id": …}, …]}. Of entries with equal ids
// the first counts. Any other text, or one beyond the bounds, is errModelList as a whole: with half of a list, turns
// would be refused.
func parseModels(list []byte) ([]Model, error) {
	answer, err := rawjson.ParseObject(list)
	if err != nil {
		return nil, errModelList
	}
	s := rawjson.Scanner{Data: answer.Get("data")}
	more, err := s.Open('[')
	models := []Model{}
	seen := map[string]struct{}{}
	for more && err == nil {
		at := s.Pos
		if s.Skip() != nil || len(seen) == maxListedModels {
			return nil, errModelList
		}
		raw := s.Data[at:s.Pos]
		card, err := rawjson.ParseObject(raw)
		if err != nil {
			return nil, errModelList
		}
		id, ok := rawjson.Text(card.Get("id"))
		if !ok || id == "" || len(id) > maxModelID {
			return nil, errModelList
		}
		if _, twice := seen[id]; !twice {
			seen[id] = struct{}{}
			models = append(models, Model{ID: id, Card: bytes.Clone(raw)})
		}
		if more, err = s.Separator(']'); err != nil {
			return nil, errModelList
		}
	}
	if err != nil {
		return nil, errModelList
	}
	return models, nil
}

// newModelSet returns the set of the models' ids. Their order does not matter.
func newModelSet(models []Model) *modelSet {
	s := &modelSet{ids: make(map[string]struct{}, len(models))}
	ids := make([]string, len(models))
	for i, m := range models {
		s.ids[m.ID], ids[i] = struct{}{}, m.ID
	}
	slices.Sort(ids)
	s.digest = digest(ids...)
	return s
}

// has reports whether a model is in the set. It needs f.mu.
func (s *modelSet) has(model string, round uint64) bool {
	if s.round != round {
		s.round = round
		_, s.serves = s.ids[model]
	}
	return s.serves
}
