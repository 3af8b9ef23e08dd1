package vllmsim

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// kvEventKind is the kind of an event.
type kvEventKind int

const (
	blockStored kvEventKind = iota
	blockRemoved
	allBlocksCleared
)

// kvEvent is one event of the KV cache.
type kvEvent struct {
	kind    kvEventKind
	hashes  []uint64
	parent  *uint64 // nil for none
	tokens  []int32
	size    int
	adapter string     // "" for none
	extra   [][]string // for each block, nil for none
}

// encodeBatch encodes events as msgspec does: as maps with the members in the order of the recordings, or as arrays.
func encodeBatch(events []kvEvent, rank int, encoding string) []byte {
	b := arrayHead(nil, 3)
	b = append(b, 0xcb)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(time.Now().UnixNano())/1e9))
	b = arrayHead(b, len(events))
	for n := range events {
		if encoding == EncodingArray {
			b = events[n].appendArray(b)
		} else {
			b = events[n].appendMap(b)
		}
	}
	return appendPacked(b, rank)
}

func (e *kvEvent) appendMap(b []byte) []byte {
	switch e.kind {
	case blockStored:
		return appendPacked(mapHead(b, 11), "type", "BlockStored", "block_hashes", e.hashes, "parent_block_hash", e.parent, "token_ids", e.tokens,
			"block_size", e.size, "lora_id", nil, "medium", "GPU", "lora_name", textOrNil(e.adapter), "extra_keys", e.extra, "group_idx", 0,
			"kv_cache_spec_kind", "full_attention")
	case blockRemoved:
		return appendPacked(mapHead(b, 4), "type", "BlockRemoved", "block_hashes", e.hashes, "medium", "GPU", "group_idx", 0)
	case allBlocksCleared:
	}
	return appendPacked(mapHead(b, 1), "type", "AllBlocksCleared")
}

func (e *kvEvent) appendArray(b []byte) []byte {
	switch e.kind {
	case blockStored:
		return appendPacked(arrayHead(b, 9), "BlockStored", e.hashes, e.parent, e.tokens, e.size, nil, "GPU", textOrNil(e.adapter), e.extra)
	case blockRemoved:
		return appendPacked(arrayHead(b, 3), "BlockRemoved", e.hashes, "GPU")
	case allBlocksCleared:
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

// mediaKey returns the key of an image.
func mediaKey(media uint64) string { return fmt.Sprintf("%016x", media) }
