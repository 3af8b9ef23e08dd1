package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// toldPin is an answer of which the program was told.
type toldPin struct {
	engine string // id of decode's engine
	blocks int
	unsure bool // the program can't count it, because the incarnation is not known
}

// bookedConnector notes the answers of which the program is told.
type bookedConnector struct {
	upstream.Connector
	books *blockUses
}

// ParseTicket implements upstream.Connector.
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

// pinBalance is what decode pins, in tokens, and what the program may tell of it.
type pinBalance struct {
	decode   string
	told     int
	from, to int // what it may be
	untold   int // answers that decode pins and of which the program was not told
}

func (b pinBalance) right() bool { return b.from <= b.told && b.told <= b.to }

// nameless notes that the program did not know which incarnation of decode has given an answer with this id.
func (c *blockUses) nameless(answer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, pin := range c.told {
		if answer != "" && strings.HasPrefix(id, answer+"-") {
			pin.unsure = true
			c.told[id] = pin
		}
	}
}

// balance compares an instance with what is told of it. What a lost notification of prefill has left pinned may be told or not.
func (c *blockUses) balance(told int, decode *vllmsim.Instance, blockSize int, lossy bool) pinBalance {
	of := pinBalance{decode: decode.URL(), told: told}
	pinned, engines := decode.Pinned(), decode.EngineIDs()
	c.mu.Lock()
	defer c.mu.Unlock()
	held := map[string]struct{}{}
	for _, pin := range pinned {
		held[pin.RequestID] = struct{}{}
		told, known := c.told[pin.RequestID]
		_, settled := c.settled[pin.RequestID]
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
	for id := range c.open {
		if _, is := held[id]; !is && slices.Contains(engines, c.told[id].engine) {
			of.to += c.told[id].blocks * blockSize
		}
	}
	return of
}

// restarts forgets what an instance has had.
func (c *blockUses) restarts(decode *vllmsim.Instance) {
	engines := decode.EngineIDs()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.open {
		if slices.Contains(engines, c.told[id].engine) {
			delete(c.open, id)
		}
	}
}

// pinSamples compares again and again what the program tells of pinned tokens with what each decode engine holds. Turns stop for that, so
// that nothing is in flight but releases and hand-backs, and once these have ended both are the same to the token.
type pinSamples struct {
	t      *testing.T
	rig    *rig
	uses   *blockUses
	doubts *doubting     // which explain more, if not nil
	limit  time.Duration // for what is in flight to end

	gate  sync.RWMutex // held by turns, and by a sample against them
	turns atomic.Int64
	taken int
	wrong *pinBalance // the first that was
}

// sampledTurns is after how many turns a sample is taken.
const sampledTurns = 20

func samplePins(t *testing.T, r *rig, uses *blockUses) *pinSamples {
	t.Helper()
	return &pinSamples{t: t, rig: r, uses: uses, limit: workedOff}
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
	if s.doubts != nil && s.doubts.alike {
		s.rig.look() // as the prober does
	}
	var wrong *pinBalance
	if !within(s.limit, func() bool { wrong = s.differs(); return wrong == nil }) {
		s.wrong = wrong
	}
}

// differs returns an instance of which the program tells something else than it holds, nil if there is none.
func (s *pinSamples) differs() *pinBalance {
	untold, most, lossy, m := 0, 0, false, scrape(s.t, s.rig.metrics())
	if s.doubts != nil {
		most, lossy = s.doubts.untold(), s.doubts.storm.restarts(config.RolePrefill) > 0
	}
	for _, decode := range s.rig.decode {
		told := int(m.sum("carryover_pinned_tokens", fmt.Sprintf("instance=%q", authority(decode))))
		of := s.uses.balance(told, decode, s.rig.cfg.BlockSize, lossy)
		untold += of.untold
		if !of.right() && (s.doubts == nil || !s.doubts.storm.hides(decode)) {
			return &of
		}
		if untold > most {
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
