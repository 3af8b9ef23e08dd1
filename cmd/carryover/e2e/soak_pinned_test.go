package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// pinBooks knows of each answer of decode whether the program was told that its blocks are pinned, and which legs have named it since. All
// by remote_request_id.
type pinBooks struct {
	unsure func() bool // answers of now may be those of an incarnation that is not known; nil is never

	mu      sync.Mutex          // guards what follows
	told    map[string]toldPin  // what the program was told of
	open    map[string]struct{} // named by a leg that failed: decode may have freed it since
	settled map[string]struct{} // named by a leg that was answered
}

// toldPin is an answer of which the program was told.
type toldPin struct {
	engine string // id of decode's engine
	blocks int
	unsure bool // the program can't count it, because the incarnation is not known
}

func newPinBooks() *pinBooks {
	return &pinBooks{told: map[string]toldPin{}, open: map[string]struct{}{}, settled: map[string]struct{}{}}
}

// watch puts the books between the program and its engines.
func (b *pinBooks) watch(deps *server.Deps) {
	deps.Connector, deps.Legs = bookedConnector{deps.Connector, b}, bookedLegs{deps.Legs, b}
}

type bookedConnector struct {
	server.Connector
	books *pinBooks
}

// ParseTicket implements server.Connector.
func (c bookedConnector) ParseTicket(final []byte, blockSize int) (upstream.TicketParams, error) {
	params := gjson.ParseBytes(final)
	id := params.Get("remote_request_id").String()
	pin := toldPin{engine: params.Get("remote_engine_id").String(), unsure: c.books.unsure != nil && c.books.unsure()}
	params.Get("remote_block_ids").ForEach(func(_, group gjson.Result) bool {
		pin.blocks += len(group.Array())
		return true
	})
	c.books.mu.Lock()
	if _, known := c.books.told[id]; !known {
		c.books.told[id] = pin
	}
	c.books.mu.Unlock()
	return c.Connector.ParseTicket(final, blockSize)
}

type bookedLegs struct {
	server.Legs
	books *pinBooks
}

// Prefill implements server.Legs.
func (l bookedLegs) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	named := gjson.GetBytes(leg.Body.Bytes(), "kv_transfer_params")
	answer, err := l.Legs.Prefill(ctx, leg)
	l.books.ended(named, err)
	return answer, err
}

// HandBack implements server.Legs.
func (l bookedLegs) HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	named := gjson.GetBytes(leg.Body.Bytes(), "kv_transfer_params")
	answer, err := l.Legs.HandBack(ctx, leg)
	l.books.ended(named, err)
	return answer, err
}

// ended notes the end of a prefill leg with such params.
func (b *pinBooks) ended(params gjson.Result, err error) {
	if !params.Get("remote_block_ids").IsArray() {
		return
	}
	id := params.Get("remote_request_id").String()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.open, id)
		b.settled[id] = struct{}{}
		return
	}
	b.open[id] = struct{}{}
}

// pinBalance is what decode pins, in tokens, and what the program may tell of it.
type pinBalance struct {
	decode   string
	told     int
	from, to int // what it may be
	untold   int // answers that decode pins and of which the program was not told
}

func (b pinBalance) right() bool { return b.from <= b.told && b.told <= b.to }

// nameless notes that the program did not know which incarnation of decode has given an answer with this id.
func (b *pinBooks) nameless(answer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, pin := range b.told {
		if answer != "" && strings.HasPrefix(id, answer+"-") {
			pin.unsure = true
			b.told[id] = pin
		}
	}
}

// balance compares an instance with what is told of it. What a lost notification of prefill has left pinned may be told or not.
func (b *pinBooks) balance(told int, decode *vllmsim.Instance, blockSize int, lossy bool) pinBalance {
	of := pinBalance{decode: decode.URL(), told: told}
	pinned, engines := decode.Pinned(), decode.EngineIDs()
	b.mu.Lock()
	defer b.mu.Unlock()
	held := map[string]struct{}{}
	for _, pin := range pinned {
		held[pin.RequestID] = struct{}{}
		told, known := b.told[pin.RequestID]
		_, settled := b.settled[pin.RequestID]
		switch {
		case pin.Leased: // decode's are not
		case !known:
			of.untold++
		case told.unsure || settled && lossy:
			of.to += pin.Blocks * blockSize
		default:
			of.from += pin.Blocks * blockSize
			of.to += pin.Blocks * blockSize
		}
	}
	for id := range b.open {
		if _, is := held[id]; !is && slices.Contains(engines, b.told[id].engine) {
			of.to += b.told[id].blocks * blockSize
		}
	}
	return of
}

// restarts forgets what an instance has had.
func (b *pinBooks) restarts(decode *vllmsim.Instance) {
	engines := decode.EngineIDs()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.open {
		if slices.Contains(engines, b.told[id].engine) {
			delete(b.open, id)
		}
	}
}

// pinSamples compares again and again what the program tells of pinned tokens with what each decode engine holds. Turns stop for that, so
// that nothing is in flight but releases and hand-backs, and once these have ended both are the same to the token.
type pinSamples struct {
	t         *testing.T
	rig       *rig
	books     *pinBooks
	blockSize int
	untold    func() int                   // answers that may be pinned without the program's knowing
	hides     func(*vllmsim.Instance) bool // of that instance the program can't know
	look      func()                       // has the program read which starts are alive, as its prober does; nil does nothing
	lossy     func() bool                  // notifications of prefill may have been lost
	limit     time.Duration                // for what is in flight to end

	gate  sync.RWMutex // held by turns, and by a sample against them
	turns atomic.Int64
	taken int
	wrong *pinBalance // the first that was
}

// sampledTurns is after how many turns a sample is taken.
const sampledTurns = 20

func samplePins(t *testing.T, r *rig, books *pinBooks, blockSize int) *pinSamples {
	t.Helper()
	return &pinSamples{
		t: t, rig: r, books: books, blockSize: blockSize, limit: workedOff,
		untold: func() int { return 0 }, hides: func(*vllmsim.Instance) bool { return false }, lossy: func() bool { return false },
	}
}

// begin is called before each turn, and what it returns behind it. Now and then it takes a sample. Of nil both do nothing.
func (s *pinSamples) begin() (end func()) {
	if s == nil {
		return func() {}
	}
	if s.turns.Add(1)%sampledTurns == 0 {
		s.gate.Lock()
		s.take()
		s.gate.Unlock()
	}
	s.gate.RLock()
	return s.gate.RUnlock
}

// take takes a sample. Behind one that was wrong there are no more.
func (s *pinSamples) take() {
	if s.wrong != nil {
		return
	}
	s.taken++
	if s.look != nil {
		s.look()
	}
	var wrong *pinBalance
	if !within(s.limit, func() bool { wrong = s.differs(); return wrong == nil }) {
		s.wrong = wrong
	}
}

// differs returns an instance of which the program tells something else than it holds, nil if there is none.
func (s *pinSamples) differs() *pinBalance {
	untold, m := 0, scrape(s.t, s.rig.metrics())
	for _, decode := range s.rig.decode {
		told := int(m.sum("carryover_pinned_tokens", fmt.Sprintf("instance=%q", strings.TrimPrefix(decode.URL(), "http://"))))
		of := s.books.balance(told, decode, s.blockSize, s.lossy())
		untold += of.untold
		if !of.right() && !s.hides(decode) {
			return &of
		}
		if most := s.untold(); untold > most {
			of.from, of.to = most, most
			return &of
		}
	}
	return nil
}

// end takes the last sample, and reports what was wrong. The program still runs.
func (s *pinSamples) end() {
	s.t.Helper()
	s.take()
	if s.wrong != nil {
		s.t.Errorf("sample %d of pinned tokens: %+v", s.taken, *s.wrong)
	}
	s.t.Logf("%d samples of pinned tokens", s.taken)
}
