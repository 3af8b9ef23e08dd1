package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"carryover/convcache"
	"carryover/sse/rawjson"
	"carryover/upstream/fleet/facts"
)

// promptIDs are the ids of a prompt with a list of them, as an engine or the client has spelled it. If an engine has told them, its answer's
// memory is theirs.
type promptIDs struct {
	facts.Prompt

	hashed convcache.IDs // the ids, hashed as far as they were compared with branches
	gone   digest        // of the ids, if they are dropped before decode says which ids it computed
}

// are reports whether an engine's list has exactly these ids. Engines spell a list as they got it, or as they sent it before, so equal bytes
// are equal ids. The ids of a list are read only if it is spelled differently.
func (p *promptIDs) are(list []byte) bool {
	if p.gone != (digest{}) {
		ids, ok := rawjson.ParseIDs(list)
		return ok && digestOf(ids) == p.gone
	}
	return len(list) > 0 && bytes.Equal(list, p.List) || rawjson.EqualIDs(list, p.IDs)
}

// digest remains of ids after drop.
type digest [sha256.Size]byte

func digestOf(ids []uint32) (d digest) {
	h := sha256.New()
	var id [4]byte
	for _, v := range ids {
		binary.LittleEndian.PutUint32(id[:], v)
		h.Write(id[:])
	}
	h.Sum(d[:0])
	return d
}
