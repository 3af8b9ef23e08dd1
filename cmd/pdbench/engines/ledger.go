package engines

import (
	"bytes"
	"strconv"
	"sync"

	"carryover/cmd/pdbench/wire"
)

// ledger remembers what each engine has handed out, and counts wrong uses.
type ledger struct {
	mu        sync.Mutex // guards the rest
	counts    Counts
	faults    Faults
	open      int // requests without a complete answer
	handovers ring
	tickets   ring
}

// holding is KV that an engine keeps for the next reader: a hand-over in prefill, a ticket in decode.
type holding struct {
	seq          uint32
	read         bool
	conversation uint64
	tokens       int // remote_num_tokens
	firstBlock   uint32
	covers       [keptCovers]cover // the last covers of the prompt, decode's answer included
}

// keptCovers is how many of the last messages of a ticket can be told apart. If a leg reads only a part of a ticket, the message in which the
// part ends is compared.
const keptCovers = 4

const blockTokens = 16

func (h *holding) blocks() int { return (h.tokens + blockTokens - 1) / blockTokens }

// ring has the last holdings of an engine. An overwritten holding was read or never will be: no conversation waits for ringSize others.
type ring struct {
	slots     []holding
	seq       uint32 // number of the last holding
	nextBlock uint32
	unread    int
}

const ringSize = 1 << 16

func newLedger() *ledger {
	return &ledger{handovers: ring{slots: make([]holding, ringSize)}, tickets: ring{slots: make([]holding, ringSize)}}
}

// add keeps a holding and gives it its number and its blocks. lost means that it overwrote a holding that nobody has read.
func (r *ring) add(h holding) (kept holding, lost bool) {
	r.seq++
	h.seq = r.seq
	n := uint32(h.blocks())
	if r.nextBlock+n >= 1<<31 { // block ids are 32-bit integers; they repeat after minutes
		r.nextBlock = 0
	}
	h.firstBlock = r.nextBlock + 1
	r.nextBlock += n
	slot := &r.slots[r.seq%ringSize]
	lost = slot.seq != 0 && !slot.read
	if !lost {
		r.unread++
	}
	*slot = h
	return h, lost
}

// find returns the holding that a request id names, or nil. faded means that it was overwritten.
func (r *ring) find(requestID []byte) (h *holding, faded bool) {
	at := bytes.LastIndexByte(requestID, '-')
	seq, err := strconv.ParseUint(string(requestID[at+1:]), 16, 32)
	if err != nil || seq == 0 {
		return nil, false
	}
	slot := &r.slots[seq%ringSize]
	if slot.seq == uint32(seq) {
		return slot, false
	}
	return nil, slot.seq > uint32(seq)
}

func (r *ring) taken(h *holding) {
	h.read = true
	r.unread--
}

// names reports whether a leg's params have the first block and the number of blocks of the holding.
func (h *holding) names(p *legParams) bool {
	list := bytes.Trim(p.blocks, "[] ")
	first, _, _ := bytes.Cut(list, []byte(","))
	n := (p.tokens + blockTokens - 1) / blockTokens
	if p.tokens == 0 { // a release has all blocks
		n = h.blocks()
	}
	return wire.Number(bytes.TrimSpace(first)) == int(h.firstBlock) && bytes.Count(list, []byte(","))+1 == n
}

// reaches reports whether the prompt begins with the first tokens of the holding.
func (h *holding) reaches(r *chatRequest, tokens int) bool {
	if h.conversation != r.conversation {
		return false
	}
	for _, c := range h.covers {
		if c.messages > 0 && int(c.messages) <= len(r.covers) && r.covers[c.messages-1] == c && int(c.tokens) >= tokens {
			return true
		}
	}
	return false
}

func (l *ledger) begin() {
	l.mu.Lock()
	l.open++
	l.mu.Unlock()
}

func (l *ledger) end(aborted bool) {
	l.mu.Lock()
	l.open--
	if aborted {
		l.counts.Aborted++
	}
	l.mu.Unlock()
}

func (l *ledger) wrongIDs() {
	l.mu.Lock()
	l.faults.MixUps++
	l.mu.Unlock()
}

// prefill judges a leg to prefill. It returns how many tokens prefill need not compute, and what prefill now keeps for decode.
func (l *ledger) prefill(r *chatRequest, decodeID string) (cached int, kept holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Prefills++
	p := &r.params
	if r.stream || r.options || r.maxTokens != 1 || !p.present || !p.remoteDecode || p.remotePrefill {
		l.faults.Flags++
	}
	if p.blocks != nil || p.requestID != nil {
		cached = l.ticket(r, decodeID)
	}
	kept, lost := l.handovers.add(holding{conversation: r.conversation, tokens: r.tokens(), covers: [keptCovers]cover{r.last()}})
	if lost {
		l.faults.Leaks++
	}
	return cached, kept
}

// ticket judges the ticket of a leg. The caller holds l.mu.
func (l *ledger) ticket(r *chatRequest, decodeID string) (cached int) {
	p := &r.params
	held, faded := l.tickets.find(p.requestID)
	if faded {
		return 0
	}
	if held == nil || string(p.engineID) != decodeID || !held.names(p) || p.tokens > held.tokens {
		l.faults.MixUps++
		return 0
	}
	if held.read {
		l.faults.Twice++
		return 0
	}
	l.tickets.taken(held)
	if p.tokens == 0 { // a release reads nothing
		return 0
	}
	if p.tokens < 0 || !held.reaches(r, p.tokens) {
		l.faults.MixUps++
		return 0
	}
	l.counts.Hits++
	return p.tokens
}

func (l *ledger) decode(r *chatRequest, prefillID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &r.params
	if !p.present {
		l.counts.Alone++
		return
	}
	l.counts.Decodes++
	if !p.remotePrefill || p.remoteDecode {
		l.faults.Flags++
	}
	held, _ := l.handovers.find(p.requestID)
	switch {
	case held == nil || string(p.engineID) != prefillID || !held.names(p) || p.tokens != held.tokens:
		l.faults.MixUps++
	case held.read:
		l.faults.Twice++
	default:
		l.handovers.taken(held)
		if held.conversation != r.conversation || held.covers[0] != r.last() {
			l.faults.MixUps++
		}
	}
}

func (l *ledger) keep(h holding) holding {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept, _ := l.tickets.add(h) // an overwritten ticket that nobody has read was the last of its conversation
	return kept
}

// reset forgets the counts, but not the hand-overs and tickets under way.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts, l.faults = Counts{}, Faults{}
}

func (l *ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts, l.faults = Counts{}, Faults{}
	for _, r := range []*ring{&l.handovers, &l.tickets} {
		clear(r.slots)
		r.unread = 0
	}
}

// look returns the counts. Open requests and unread hand-overs count as leaks; quiet means that there are none.
func (l *ledger) look() (f Faults, c Counts, quiet bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, c = l.faults, l.counts
	left := l.open + l.handovers.unread
	f.Leaks += left
	return f, c, left == 0
}
