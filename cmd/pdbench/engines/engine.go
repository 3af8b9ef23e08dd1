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

// engine is one instance that looks like vLLM with NixlConnector, bidirectional_kv_xfer and, if its pace says so, Carryover's plug-in. It
// computes nothing. It costs only reading requests, writing answers, and the ledger.
type engine struct {
	decodes  bool
	id       string // remote_engine_id
	peer     string // remote_engine_id of the other role
	sidePort int    // its remote_port; nobody listens there
	started  time.Time
	serial   atomic.Uint64 // counts requests without an id
	*shared
}

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
	Chunks int           `json:"chunks"` // of an answer, one token and one write each; the last has no text
	Gap    time.Duration `json:"gap"`    // between two chunks
	// ChunkIDs puts the ids into each chunk (return_token_ids on decode's leg); otherwise the plug-in puts them into decode's last params.
	ChunkIDs bool `json:"chunk_ids"`
	// Only for streams with a gap: how many decode instances share them, and the time between two writes of a step.
	Instances int           `json:"instances"`
	Apart     time.Duration `json:"apart"`
	VLLM      Version       `json:"vllm"` // "" is the newest
}

// Version is the version of vLLM whose answers the engines give.
type Version string

// The versions. Each chunk of 0.33 has kv_transfer_params, null except in the finish chunk of a request with params.
const (
	VLLM032 Version = "0.32"
	VLLM033 Version = "0.33"
)

// fingerprint returns the member system_fingerprint, with a comma before it.
func (v Version) fingerprint() string {
	if v == VLLM032 {
		return `,"system_fingerprint":"vllm-0.32.0-f265d66e"`
	}
	return `,"system_fingerprint":"vllm-0.33.0-f13ca5ba"`
}

// scratches is memory that a message needs for a short time.
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
		seed: maphash.MakeSeed(), numerals: numbers, rendered: &renderings{numerals: numbers}, ledger: newLedger(), pacer: &pacer{now: time.Now, wake: make(chan struct{}, 1)},
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

// accept serves connections until the listener closes, and returns when the last connection has ended.
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
