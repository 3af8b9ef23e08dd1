package engines

import (
	"context"
	"fmt"
	"hash/maphash"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// engine is one instance that looks like vLLM with NixlConnector, bidirectional_kv_xfer and, as its pace has it, Carryover's plug-in.
// It computes nothing: what it costs is reading requests, writing answers and the ledger.
type engine struct {
	decodes  bool
	id       string // remote_engine_id
	peer     string // that of the other role
	sidePort int    // what it tells as remote_port; nobody listens there
	started  time.Time
	serial   atomic.Uint64 // of requests that bring no id
	*shared
}

// shared is what the two engines of a pair have together.
type shared struct {
	seed      maphash.Seed
	numerals  *numerals
	rendered  *renderings
	ledger    *ledger
	pacer     *pacer
	pace      *atomic.Pointer[Pace]
	scratches *scratches
	closing   <-chan struct{}
}

// Pace says how the engines answer.
type Pace struct {
	Chunks int           `json:"chunks"` // of an answer, a token and a write each; the last has no text
	Gap    time.Duration `json:"gap"`    // between two of them
	// ChunkIDs says that ids come in each chunk (return_token_ids on decode's leg), not in decode's last params as from its plug-in.
	ChunkIDs bool `json:"chunk_ids"`
	// Of streams with a gap: how many decode instances they are spread over, and the time between two writes of a step.
	Instances int           `json:"instances"`
	Apart     time.Duration `json:"apart"`
	VLLM      Version       `json:"vllm"` // "" is the newest
}

// Version is the version of vLLM whose answers the engines give.
type Version string

// The versions. Each chunk of 0.33 has kv_transfer_params, null but in the finish of a request that had some.
const (
	VLLM032 Version = "0.32"
	VLLM033 Version = "0.33"
)

// fingerprint is the member of that name, with a comma before it.
func (v Version) fingerprint() string {
	if v == VLLM032 {
		return `,"system_fingerprint":"vllm-0.32.0-f265d66e"`
	}
	return `,"system_fingerprint":"vllm-0.33.0-f13ca5ba"`
}

// scratches is memory that a message needs for a moment.
type scratches struct{ pool sync.Pool }

func (s *scratches) get() *[]byte {
	if b, ok := s.pool.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (s *scratches) give(b *[]byte) {
	*b = (*b)[:0]
	s.pool.Put(b)
}

// newEngines returns a prefill and a decode engine that know each other.
func newEngines(closing <-chan struct{}) (prefill, decode *engine) {
	numbers := newNumerals()
	both := &shared{
		seed: maphash.MakeSeed(), numerals: numbers, rendered: &renderings{numerals: numbers}, ledger: newLedger(), pacer: newPacer(),
		pace: &atomic.Pointer[Pace]{}, scratches: &scratches{}, closing: closing,
	}
	both.pace.Store(&Pace{Chunks: 16})
	one := func(decodes bool, id, peer string, sidePort int) *engine {
		return &engine{decodes: decodes, id: id, peer: peer, sidePort: sidePort, started: time.Now(), shared: both}
	}
	stamp := strconv.FormatInt(time.Now().UnixNano(), 36)
	p, d := "prefill-"+stamp, "decode-"+stamp
	return one(false, p, d, 5559), one(true, d, p, 5659)
}

// accept serves connections until the listener closes, and returns when the last of them has ended.
func (e *engine) accept(ctx context.Context, listener net.Listener) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		serving.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			if tcp, ok := c.(*net.TCPConn); ok {
				e.serve(tcp)
			}
		})
	}
}
