package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"carryover/convcache"
)

// codecVersion begins every payload. A store reads only its own version; during an upgrade tickets of the other one are misses.
const codecVersion byte = 6

// maxCount bounds every count in a payload. Package upstream bounds remote_num_tokens by 2^24.
const maxCount = math.MaxInt32

const branchOverhead = 256

var errCodec = errors.New("read ticket: malformed")

func encodeBranch(b *convcache.Branch) []byte {
	c := newCoder(8*len(b.Chain.Blocks) + 4*len(b.Outline))
	c.branch(b)
	return c.payload
}

func readBranch(payload []byte) (b convcache.Branch, err error) {
	return b, read(payload, func(c *coder) { c.branch(&b) })
}

// encodeParams returns the payload of fieldParams, which only Take reads; it is empty for a note.
func encodeParams(t *convcache.Ticket) []byte {
	c := newCoder(len(t.Params))
	c.params(t)
	return c.payload
}

// readParams fills a ticket from the payload of fieldParams. Params share memory with the payload.
func readParams(payload []byte, t *convcache.Ticket) error {
	return read(payload, func(c *coder) { c.params(t) })
}

// coder writes or reads a payload: each method appends the value, or fills it. After the first missing byte it fills nothing.
type coder struct {
	payload []byte // the written bytes, or the unread rest
	reading bool
	failed  bool
}

func newCoder(size int) *coder {
	return &coder{payload: append(make([]byte, 0, branchOverhead+size), codecVersion)}
}

func read(payload []byte, fill func(c *coder)) error {
	if len(payload) == 0 || payload[0] != codecVersion {
		return errCodec
	}
	c := &coder{payload: payload[1:], reading: true}
	if fill(c); c.failed || len(c.payload) != 0 {
		return errCodec
	}
	return nil
}

func (c *coder) branch(b *convcache.Branch) {
	c.time(&b.Deadline)
	c.time(&b.FreshAsOf)
	c.int64(&b.Epoch)
	blocks, parts, caches := len(b.Chain.Blocks), len(b.Outline), len(b.Prefilled)
	for _, n := range [...]*int{&b.Tokens, &b.SharedPrefixTokens, &b.Chain.BlockSize, &b.Chain.Tokens, &blocks, &parts} {
		c.number(n)
	}
	c.holder(&b.Decode)
	c.holder(&b.Prefill)
	whole := int64(b.Chain.Whole)
	c.int64(&whole)
	b.Chain.Whole = uint64(whole)
	list(c, &b.Chain.Blocks, blocks, 8)
	list(c, &b.Outline, parts, 4)
	if c.number(&caches); c.reading && caches > 0 {
		c.failed = c.failed || caches > convcache.MaxPrefilled
		b.Prefilled = make([]convcache.Prefilled, min(caches, convcache.MaxPrefilled))
	}
	for i := range b.Prefilled {
		c.holder(&b.Prefilled[i].Prefill)
		c.number(&b.Prefilled[i].Tokens)
	}
}

func (c *coder) params(t *convcache.Ticket) {
	chars(c, &t.EngineID)
	chars(c, &t.Params)
}

func (c *coder) holder(h *convcache.Holder) {
	chars(c, &h.Instance)
	chars(c, &h.Incarnation)
}

// time codes nanoseconds since 1970, and 0 for no time.
func (c *coder) time(t *time.Time) {
	var nanos int64
	if !t.IsZero() {
		nanos = t.UnixNano()
	}
	if c.int64(&nanos); c.reading && nanos != 0 {
		*t = time.Unix(0, nanos)
	}
}

func (c *coder) int64(n *int64) {
	if !c.reading {
		c.payload = binary.BigEndian.AppendUint64(c.payload, uint64(*n))
	} else if taken := c.take(8); taken != nil {
		*n = int64(binary.BigEndian.Uint64(taken))
	}
}

func (c *coder) number(n *int) {
	if !c.reading {
		c.payload = binary.AppendUvarint(c.payload, uint64(*n))
		return
	}
	value, size := binary.Uvarint(c.payload)
	if size <= 0 || value > maxCount {
		c.failed, c.payload = true, nil
		return
	}
	*n, c.payload = int(value), c.payload[size:]
}

// take returns the next n bytes, nil if there are fewer.
func (c *coder) take(n int) (taken []byte) {
	if n > len(c.payload) {
		c.failed, c.payload = true, nil
		return nil
	}
	taken, c.payload = c.payload[:n], c.payload[n:]
	return taken
}

// chars codes a text with its length. Bytes that it reads share memory with the payload.
func chars[T string | []byte](c *coder, s *T) {
	n := len(*s)
	if c.number(&n); !c.reading {
		c.payload = append(c.payload, *s...)
	} else if taken := c.take(n); len(taken) > 0 { // a note has no params
		*s = T(taken)
	}
}

func list[T uint32 | uint64](c *coder, all *[]T, n, size int) {
	if !c.reading {
		c.payload, _ = binary.Append(c.payload, binary.BigEndian, *all) // fails only for types without a fixed size
	} else if taken := c.take(n * size); len(taken) > 0 {
		*all = make([]T, n)
		_, _ = binary.Decode(taken, binary.BigEndian, *all)
	}
}
