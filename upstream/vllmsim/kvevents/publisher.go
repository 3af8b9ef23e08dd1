// Package kvevents publishes the changes of an engine's prefix cache like vLLM with --kv-events-config: MessagePack over ZeroMQ's PUB, and
// old batches over a ROUTER.
package kvevents

import (
	"sync"

	"carryover/upstream/vllmsim/config"
)

// bufferSteps is how many batches can be replayed (buffer_steps).
const bufferSteps = 10_000

type publishedBatch struct {
	seq     uint64
	payload []byte
}

// Publisher publishes the KV events of one incarnation of an engine (vllm/distributed/kv_events.py, ZmqEventPublisher). It gathers events,
// and the next step publishes them as one batch. A nil Publisher publishes nothing.
type Publisher struct {
	cfg  config.KVEvents
	rank int

	mu          sync.Mutex // guards what follows; taken after the engine's
	pending     []Event
	next        uint64 // number of the next batch
	buffer      []publishedBatch
	subscribers map[*eventSubscriber]struct{}
}

// New returns the publisher of a rank, nil if cfg publishes nothing.
func New(cfg config.KVEvents, rank int) *Publisher {
	if cfg.Port == 0 {
		return nil
	}
	return &Publisher{cfg: cfg, rank: rank, subscribers: map[*eventSubscriber]struct{}{}}
}

// Happen gathers an event.
func (p *Publisher) Happen(e Event) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, e)
}

// Step publishes the gathered events.
func (p *Publisher) Step() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 {
		return
	}
	b := publishedBatch{p.next, encodeBatch(p.pending, p.rank)}
	p.pending, p.next = nil, p.next+1
	if p.buffer = append(p.buffer, b); len(p.buffer) > bufferSteps {
		p.buffer = p.buffer[1:]
	}
	for s := range p.subscribers {
		if s.wants(p.cfg.Topic) {
			s.send(b)
		}
	}
}

// from returns the batches from a number on that can still be replayed.
func (p *Publisher) from(seq uint64) (batches []publishedBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.buffer {
		if b.seq >= seq {
			batches = append(batches, b)
		}
	}
	return batches
}
