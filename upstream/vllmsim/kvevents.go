package vllmsim

import (
	"sync"
)

// Values of KVEventsConfig.Encoding.
const (
	EncodingMap   = "map"   // vLLM 0.24 and newer (#42892)
	EncodingArray = "array" // before
)

// KVEventsConfig is --kv-events-config with the publisher "zmq".
type KVEventsConfig struct {
	// Port is the port at which the first rank publishes events; the other ranks have the ports behind it. -1 means a free port for each, 0
	// no events.
	Port int `json:"port"`
	// ReplayPort is the port at which old events are replayed, with the same values as Port.
	ReplayPort int `json:"replay_port"`
	// Encoding is the form of an event, EncodingMap by default.
	Encoding string `json:"encoding"`
	Topic    string `json:"topic"`
	// BufferSteps is how many batches can be replayed, 10,000 by default.
	BufferSteps int `json:"buffer_steps"`
}

func (c *KVEventsConfig) setDefaults() {
	orDefault(&c.Encoding, EncodingMap)
	orDefault(&c.BufferSteps, 10_000)
}

// publishedBatch is a batch that was published.
type publishedBatch struct {
	seq     uint64
	payload []byte
}

// publisher publishes the KV events of one incarnation of an engine (vllm/distributed/kv_events.py, ZmqEventPublisher). It gathers events and
// publishes them as one batch with the next step. A nil publisher publishes nothing.
type publisher struct {
	cfg  KVEventsConfig
	rank int

	mu          sync.Mutex // guards what follows; taken after the engine's
	pending     []kvEvent
	next        uint64 // number of the next batch
	buffer      []publishedBatch
	drops       int // number of coming batches that subscribers do not get
	subscribers map[*eventSubscriber]struct{}
}

func newPublisher(cfg KVEventsConfig, rank int) *publisher {
	if cfg.Port == 0 {
		return nil
	}
	return &publisher{cfg: cfg, rank: rank, subscribers: map[*eventSubscriber]struct{}{}}
}

// happen gathers an event.
func (p *publisher) happen(e kvEvent) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, e)
}

// step publishes the gathered events.
func (p *publisher) step() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 {
		return
	}
	b := publishedBatch{p.next, encodeBatch(p.pending, p.rank, p.cfg.Encoding)}
	p.pending, p.next = nil, p.next+1
	if p.buffer = append(p.buffer, b); len(p.buffer) > p.cfg.BufferSteps {
		p.buffer = p.buffer[1:]
	}
	if p.drops > 0 {
		p.drops--
		return
	}
	for s := range p.subscribers {
		s.send(b)
	}
}

// from returns the batches that can still be replayed, beginning with a number.
func (p *publisher) from(seq uint64) (batches []publishedBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.buffer {
		if b.seq >= seq {
			batches = append(batches, b)
		}
	}
	return batches
}

// DropEvents withholds the next n batches of every rank from subscribers, as a full queue does. They can still be replayed.
func (i *Instance) DropEvents(n int) {
	for _, e := range i.engines() {
		if p := e.events; p != nil {
			p.mu.Lock()
			p.drops = n
			p.mu.Unlock()
		}
	}
}

// filed gathers events for the newly filed blocks of a run; adjacent blocks become one event. The caller holds e.mu.
func (r *run) filed(tokens []int32, hashes []uint64, fresh []int) {
	if r.engine.events == nil {
		return
	}
	size := r.engine.cfg.BlockSize
	for len(fresh) > 0 {
		n := 1
		for n < len(fresh) && fresh[n] == fresh[0]+n {
			n++
		}
		first, end := fresh[0], fresh[0]+n
		e := kvEvent{kind: blockStored, hashes: hashes[first:end], tokens: tokens[first*size : end*size], size: size, adapter: r.req.adapter}
		if first > 0 {
			e.parent = &hashes[first-1]
		}
		for block := first; block < end; block++ {
			e.extra = append(e.extra, r.extraKeys(block))
		}
		r.engine.events.happen(e)
		fresh = fresh[n:]
	}
	r.engine.events.step()
}

// extraKeys returns the inputs of a block's hash besides its tokens, nil for none (generate_block_hash_extra_keys in
// vllm/v1/core/kv_cache_utils.py).
func (r *run) extraKeys(block int) (keys []string) {
	if r.req.adapter != "" {
		keys = append(keys, r.req.adapter)
	}
	size := r.engine.cfg.BlockSize
	for at := block * size; at < (block+1)*size; at++ {
		if m := mediaAt(r.req.media, at); m != 0 {
			keys = append(keys, mediaKey(m))
			break
		}
	}
	if salt := r.req.tenant(); block == 0 && salt != "" {
		keys = append(keys, salt)
	}
	return keys
}
