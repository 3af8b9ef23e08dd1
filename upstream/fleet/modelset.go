package fleet

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"carryover/upstream/fleet/facts"
)

// modelSet is the set of model ids of a list. Engines with equal lists share one set, so that a pick looks its model
// up once and not in a thousand lists.
type modelSet struct {
	ids    map[string]struct{}
	digest [sha256.Size]byte

	// The answer for the pick with number round. The Picker's lock guards both.
	round  uint64
	serves bool
}

// newModelSet returns the set of the models' ids. Their order does not matter.
func newModelSet(models []facts.Model) *modelSet {
	s := &modelSet{ids: make(map[string]struct{}, len(models))}
	ids := make([]string, len(models))
	for i, m := range models {
		s.ids[m.ID], ids[i] = struct{}{}, m.ID
	}
	slices.Sort(ids)
	hash := sha256.New()
	for _, id := range ids {
		fmt.Fprintf(hash, "%d:%s", len(id), id)
	}
	hash.Sum(s.digest[:0])
	return s
}

// has reports whether a model is in the set. It needs the lock of the Picker.
func (s *modelSet) has(model string, round uint64) bool {
	if s.round != round {
		s.round = round
		_, s.serves = s.ids[model]
	}
	return s.serves
}
