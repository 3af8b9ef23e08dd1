package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"carryover/convcache"
)

// codecVersion opens the payload of every field. A store reads its own version only; during an upgrade
// tickets of the other one are misses.
const codecVersion byte = 6

// maxCount bounds every count in a payload; remote_num_tokens is at most 2^24 (upstream checks that).
const maxCount = math.MaxInt32

// branchOverhead is what a branch usually takes beside its blocks, names included.
const branchOverhead = 256

var errCodec = errors.New("read ticket: malformed")

// encodeBranch returns the payload of fieldBranch: what a look-up may tell, and when the reader was last
// caught up with decode, by which every look-up judges whether clocks agree.
func encodeBranch(b *convcache.Branch) []byte {
	to := make([]byte, 0, branchOverhead+8*len(b.Chain.Blocks)+4*len(b.Outline))
	to = append(to, codecVersion)
	to = appendTime(to, b.Deadline)
	to = appendTime(to, b.FreshAsOf)
	to = binary.BigEndian.AppendUint64(to, uint64(b.Epoch))
	numbers := [...]int{b.Tokens, b.SharedPrefixTokens, b.Chain.BlockSize, b.Chain.Tokens, len(b.Chain.Blocks), len(b.Outline)}
	for _, n := range numbers {
		to = binary.AppendUvarint(to, uint64(n))
	}
	for _, name := range [...]string{b.Decode.Instance, b.Decode.Incarnation, b.Prefill.Instance, b.Prefill.Incarnation} {
		to = appendText(to, name)
	}
	to = binary.BigEndian.AppendUint64(to, b.Chain.Whole)
	for _, hash := range b.Chain.Blocks {
		to = binary.BigEndian.AppendUint64(to, hash)
	}
	for _, tag := range b.Outline {
		to = binary.BigEndian.AppendUint32(to, tag)
	}
	return appendPrefilled(to, b.Prefilled)
}

// readBranch reads the payload of fieldBranch.
func readBranch(payload []byte) (convcache.Branch, error) {
	r := reader{in: payload}
	if r.byte() != codecVersion {
		return convcache.Branch{}, errCodec
	}
	b := convcache.Branch{Deadline: r.time(), FreshAsOf: r.time(), Epoch: int64(r.uint64())}
	b.Tokens, b.SharedPrefixTokens = r.number(), r.number()
	b.Chain.BlockSize, b.Chain.Tokens = r.number(), r.number()
	blocks, parts := r.number(), r.number()
	b.Decode, b.Prefill = convcache.Holder{Instance: r.text(), Incarnation: r.text()}, convcache.Holder{Instance: r.text(), Incarnation: r.text()}
	b.Chain.Whole = r.uint64()
	if chain := r.bytes(8 * blocks); !r.failed && blocks > 0 {
		b.Chain.Blocks = make([]uint64, blocks)
		for i := range b.Chain.Blocks {
			b.Chain.Blocks[i] = binary.BigEndian.Uint64(chain[8*i:])
		}
	}
	if outline := r.bytes(4 * parts); !r.failed && parts > 0 {
		b.Outline = make([]uint32, parts)
		for i := range b.Outline {
			b.Outline[i] = binary.BigEndian.Uint32(outline[4*i:])
		}
	}
	if b.Prefilled = r.prefilled(); r.failed || len(r.in) != 0 {
		return convcache.Branch{}, errCodec
	}
	return b, nil
}

// encodeParams returns the payload of fieldParams: what only the taker needs, and of a note nothing.
func encodeParams(t *convcache.Ticket) []byte {
	to := append(make([]byte, 0, branchOverhead+len(t.Params)), codecVersion)
	to = appendText(to, t.EngineID)
	return appendText(to, t.Params)
}

// readParams fills a ticket from the payload of fieldParams.
func readParams(payload []byte, t *convcache.Ticket) error {
	r := reader{in: payload}
	if r.byte() != codecVersion {
		return errCodec
	}
	t.EngineID = r.text()
	params := r.bytes(r.number())
	if r.failed || len(r.in) != 0 {
		return errCodec
	}
	if len(params) > 0 { // a note has none
		t.Params = params
	}
	return nil
}

// appendTime writes nanoseconds since 1970, and 0 for no time.
func appendTime(to []byte, t time.Time) []byte {
	var nanos int64
	if !t.IsZero() {
		nanos = t.UnixNano()
	}
	return binary.BigEndian.AppendUint64(to, uint64(nanos))
}

func appendText[T string | []byte](to []byte, s T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

// reader takes a payload apart. After the first thing that is not there it returns zero values only.
type reader struct {
	in     []byte
	failed bool
}

func (r *reader) bytes(n int) []byte {
	if r.failed || n > len(r.in) {
		r.failed, r.in = true, nil
		return nil
	}
	taken := r.in[:n]
	r.in = r.in[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.in)
	if size <= 0 {
		r.failed, r.in = true, nil
		return 0
	}
	r.in = r.in[size:]
	return n
}

func (r *reader) number() int {
	n := r.uvarint()
	if n > maxCount {
		r.failed, r.in = true, nil
		return 0
	}
	return int(n)
}

func (r *reader) text() string { return string(r.bytes(r.number())) }

func (r *reader) time() time.Time {
	nanos := int64(r.uint64())
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

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
