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
const codecVersion byte = 4

// maxCount bounds every count in a payload; remote_num_tokens is at most 2^24 (upstream checks that).
const maxCount = math.MaxInt32

// branchOverhead is what a branch usually takes beside its blocks, names included.
const branchOverhead = 256

var errCodec = errors.New("read ticket: malformed")

// encodeBranch returns the payload of fieldBranch: what a look-up may tell, and when the reader was last
// caught up with decode, by which every look-up judges whether clocks agree.
func encodeBranch(t *convcache.Ticket, history convcache.Digest) []byte {
	to := make([]byte, 0, branchOverhead+8*len(t.Chain.Blocks))
	to = append(to, codecVersion)
	to = appendTime(to, t.Deadline)
	to = appendTime(to, t.FreshAsOf)
	to = append(to, history[:]...)
	ok := byte(0)
	if t.HistoryOK {
		ok = 1
	}
	to = append(to, ok)
	numbers := [...]int{t.Covers, t.Tokens, t.Groups, t.SharedPrefixTokens, t.Chain.BlockSize, t.Chain.Tokens, len(t.Chain.Blocks)}
	for _, n := range numbers {
		to = binary.AppendUvarint(to, uint64(n))
	}
	for _, name := range [...]string{t.Decode, t.Incarnation, t.Prefill, t.PrefillIncarnation} {
		to = appendText(to, name)
	}
	to = binary.BigEndian.AppendUint64(to, t.Chain.Whole)
	for _, hash := range t.Chain.Blocks {
		to = binary.BigEndian.AppendUint64(to, hash)
	}
	return appendPrefilled(appendLineage(to, &t.Lineage), t.Prefilled)
}

// readBranch fills a ticket from the payload of fieldBranch. Its History is as it was written.
func readBranch(payload []byte) (convcache.Ticket, error) {
	r := reader{in: payload}
	if r.byte() != codecVersion {
		return convcache.Ticket{}, errCodec
	}
	t := convcache.Ticket{Deadline: r.time(), FreshAsOf: r.time()}
	copy(t.History[:], r.bytes(len(t.History)))
	t.HistoryOK = r.byte() == 1
	t.Covers, t.Tokens, t.Groups, t.SharedPrefixTokens = r.number(), r.number(), r.number(), r.number()
	t.Chain.BlockSize, t.Chain.Tokens = r.number(), r.number()
	blocks := r.number()
	t.Decode, t.Incarnation, t.Prefill, t.PrefillIncarnation = r.text(), r.text(), r.text(), r.text()
	t.Chain.Whole = r.uint64()
	if chain := r.bytes(8 * blocks); !r.failed && blocks > 0 {
		t.Chain.Blocks = make([]uint64, blocks)
		for i := range t.Chain.Blocks {
			t.Chain.Blocks[i] = binary.BigEndian.Uint64(chain[8*i:])
		}
	}
	if t.Lineage, t.Prefilled = r.lineage(), r.prefilled(); r.failed || len(r.in) != 0 {
		return convcache.Ticket{}, errCodec
	}
	return t, nil
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
