package kvevents

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"carryover/upstream/vllmsim/config"
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
	Adapter string     // "" for none
	Extra   [][]string // for each block, nil for none
}

// encodeBatch encodes events as msgspec does: as maps with the members in the order of the recordings, or as arrays.
func encodeBatch(events []Event, rank int, encoding string) []byte {
	b := arrayHead(nil, 3)
	b = append(b, 0xcb)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(time.Now().UnixNano())/1e9))
	b = arrayHead(b, len(events))
	for n := range events {
		if encoding == config.EncodingArray {
			b = events[n].appendArray(b)
		} else {
			b = events[n].appendMap(b)
		}
	}
	return appendPacked(b, rank)
}

func (e *Event) appendMap(b []byte) []byte {
	switch e.Kind {
	case Stored:
		return appendPacked(mapHead(b, 11), "type", "BlockStored", "block_hashes", e.Hashes, "parent_block_hash", e.Parent, "token_ids", e.Tokens,
			"block_size", e.Size, "lora_id", nil, "medium", "GPU", "lora_name", textOrNil(e.Adapter), "extra_keys", e.Extra, "group_idx", 0,
			"kv_cache_spec_kind", "full_attention")
	case Removed:
		return appendPacked(mapHead(b, 4), "type", "BlockRemoved", "block_hashes", e.Hashes, "medium", "GPU", "group_idx", 0)
	case Cleared:
	}
	return appendPacked(mapHead(b, 1), "type", "AllBlocksCleared")
}

func (e *Event) appendArray(b []byte) []byte {
	switch e.Kind {
	case Stored:
		return appendPacked(arrayHead(b, 9), "BlockStored", e.Hashes, e.Parent, e.Tokens, e.Size, nil, "GPU", textOrNil(e.Adapter), e.Extra)
	case Removed:
		return appendPacked(arrayHead(b, 3), "BlockRemoved", e.Hashes, "GPU")
	case Cleared:
	}
	return appendPacked(arrayHead(b, 1), "AllBlocksCleared")
}

// textOrNil returns nil for "", and s otherwise.
func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// appendPacked writes values as MessagePack in its shortest form.
func appendPacked(b []byte, values ...any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			b = append(b, 0xc0)
		case int:
			b = appendNumber(b, uint64(v))
		case *uint64:
			if v == nil {
				b = append(b, 0xc0)
			} else {
				b = appendNumber(b, *v)
			}
		case string:
			b = append(head(b, len(v), 31, 0xa0, 0xd9, 0xda), v...)
		case []uint64:
			b = arrayHead(b, len(v))
			for _, n := range v {
				b = appendNumber(b, n)
			}
		case []int32:
			b = arrayHead(b, len(v))
			for _, n := range v {
				b = appendNumber(b, uint64(n))
			}
		case [][]string:
			b = arrayHead(b, len(v))
			for _, keys := range v {
				b = appendKeys(b, keys)
			}
		default:
			panic(fmt.Sprintf("msgpack of %T", v))
		}
	}
	return b
}

func appendKeys(b []byte, keys []string) []byte {
	if keys == nil {
		return append(b, 0xc0)
	}
	b = arrayHead(b, len(keys))
	for _, key := range keys {
		b = appendPacked(b, key)
	}
	return b
}

func arrayHead(b []byte, n int) []byte { return head(b, n, 15, 0x90, 0, 0xdc) }

func mapHead(b []byte, n int) []byte { return head(b, n, 15, 0x80, 0, 0xde) }

// head writes the head of a value with n parts. It uses the short form up to a limit, then the form with 8 bits if there is one, then 16 or 32.
func head(b []byte, n, short int, fix, form8, form16 byte) []byte {
	switch {
	case n <= short:
		return append(b, fix|byte(n))
	case n <= math.MaxUint8 && form8 != 0:
		return append(b, form8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, form16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, form16+1), uint32(n))
}

func appendNumber(b []byte, n uint64) []byte {
	switch {
	case n < 0x80:
		return append(b, byte(n))
	case n <= math.MaxUint8:
		return append(b, 0xcc, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), n)
}
