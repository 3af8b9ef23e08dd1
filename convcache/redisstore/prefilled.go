package redisstore

import (
	"encoding/binary"

	"carryover/convcache"
)

// appendPrefilled writes the number of entries, and then each entry.
func appendPrefilled(to []byte, all []convcache.Prefilled) []byte {
	to = binary.AppendUvarint(to, uint64(len(all)))
	for _, p := range all {
		to = appendText(appendText(to, p.Prefill.Instance), p.Prefill.Incarnation)
		to = binary.AppendUvarint(to, uint64(p.Tokens))
	}
	return to
}

// prefilled reads what appendPrefilled has written. More caches than a ticket tells of are none of ours.
func (r *reader) prefilled() (all []convcache.Prefilled) {
	n := r.number()
	if n > convcache.MaxPrefilled {
		r.failed, r.in = true, nil
		return nil
	}
	for range n {
		all = append(all, convcache.Prefilled{Prefill: convcache.Holder{Instance: r.text(), Incarnation: r.text()}, Tokens: r.number()})
	}
	return all
}
