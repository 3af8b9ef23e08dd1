package kvevents

import (
	"time"

	"github.com/tinylib/msgp/msgp"
)

// Kind is the kind of an event.
type Kind int

// The kinds of Event.
const (
	Stored Kind = iota
	Removed
	Cleared
)

// Event is one event of the KV cache.
type Event struct {
	Kind    Kind
	Hashes  []uint64
	Parent  *uint64 // nil for none
	Tokens  []int32
	Size    int
	Adapter string // "" for none
	Extra   []any  // for each block a list of texts, nil for none
}

// encodeBatch encodes events like msgspec: as maps, with the members in the order of the recordings.
func encodeBatch(events []Event, rank int) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, float64(time.Now().UnixNano())/1e9)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for n := range events {
		b = events[n].append(b)
	}
	return msgp.AppendUint(b, uint(rank))
}

func (e *Event) append(b []byte) []byte {
	switch e.Kind {
	case Stored:
		return appendMap(b, "type", "BlockStored", "block_hashes", e.Hashes, "parent_block_hash", e.Parent, "token_ids", e.Tokens,
			"block_size", e.Size, "lora_id", nil, "medium", "GPU", "lora_name", textOrNil(e.Adapter), "extra_keys", e.Extra, "group_idx", 0,
			"kv_cache_spec_kind", "full_attention")
	case Removed:
		return appendMap(b, "type", "BlockRemoved", "block_hashes", e.Hashes, "medium", "GPU", "group_idx", 0)
	case Cleared:
	}
	return appendMap(b, "type", "AllBlocksCleared")
}

func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// appendMap writes keys and values, each in its shortest form.
func appendMap(b []byte, members ...any) []byte {
	b = msgp.AppendMapHeader(b, uint32(len(members)/2))
	for _, v := range members {
		switch v := v.(type) {
		case int:
			b = msgp.AppendUint(b, uint(v))
		case []int32:
			b = msgp.AppendArrayHeader(b, uint32(len(v)))
			for _, n := range v {
				b = msgp.AppendUint(b, uint(n))
			}
		default:
			b, _ = msgp.AppendIntf(b, v) // the library knows the types of all members
		}
	}
	return b
}
