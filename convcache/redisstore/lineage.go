package redisstore

import (
	"encoding/binary"

	"carryover/convcache"
)

// ancestorSize is what an ancestor takes in a payload.
const ancestorSize = 24

// appendLineage writes a lineage: Others, the number of ancestors, and each ancestor.
func appendLineage(to []byte, l *convcache.Lineage) []byte {
	to = binary.BigEndian.AppendUint64(to, uint64(l.Others))
	to = binary.AppendUvarint(to, uint64(len(l.Ancestors)))
	for _, a := range l.Ancestors {
		to = binary.BigEndian.AppendUint64(to, uint64(a.Incarnation))
		to = binary.BigEndian.AppendUint64(to, a.Space)
		to = binary.BigEndian.AppendUint64(to, uint64(a.Until))
	}
	return to
}

// lineage reads what appendLineage has written. More ancestors than a lineage names are none of ours.
func (r *reader) lineage() (l convcache.Lineage) {
	l.Others = int64(r.uint64())
	n := r.number()
	if n > convcache.MaxAncestors {
		r.failed, r.in = true, nil
		return l
	}
	all := r.bytes(ancestorSize * n)
	for ; len(all) > 0; all = all[ancestorSize:] {
		l.Ancestors = append(l.Ancestors, convcache.Ancestor{
			Incarnation: convcache.Incarnation(binary.BigEndian.Uint64(all)), Space: binary.BigEndian.Uint64(all[8:]),
			Until: int64(binary.BigEndian.Uint64(all[16:])),
		})
	}
	return l
}
