package vllmsim

import (
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/fault"
	"context"
	"errors"
	"time"
)

type pushOp int

const (
	pushInit pushOp = iota
	pushAllocate
	pushLand
	pushCancel
)

// pushRequest is a request from a rank of a sender to a receiver. At the init port it stands for LMCache's NIXL handshake, at the alloc
// port for AllocRequest, the one-sided write, and CancelNotif.
type pushRequest struct {
	Op      pushOp
	Rank    int
	Ranks   int // number of the sender's ranks that save
	Keys    []uint64
	Content [][]uint64 // KV of each key, with pushLand
}

// handover is the KV of one prompt under way.
type handover struct {
	spec    disaggSpec
	ranks   int // ranks that save and have ports in the spec
	keys    []uint64
	content [][]uint64
	takes   time.Duration // time for all shares together, in engine time
	fault   *fault.Active
}

// newHandover copies the KV of a prompt. It sends the whole prompt, even what the receiver already has, and the last chunk even if it is
// not full (save_unfull_chunk).
func (l *lmcache) newHandover(r *run, spec disaggSpec) *handover {
	e, prompt := l.engine, r.req.prompt
	h := &handover{spec: spec, fault: r.req.fault}
	// A rank without a port fails alone: the answer comes, but this rank stores and announces nothing.
	h.ranks = min(l.cfg.Savers(), len(h.spec.InitPorts), len(h.spec.AllocPorts))
	h.takes = time.Duration(ceilDiv(len(prompt), e.cfg.BlockSize)) * r.timing().TransferPerBlock
	e.mu.Lock()
	defer e.mu.Unlock()
	from := 0
	for _, key := range chunkKeys(r.req.seed^r.req.params.tags(), prompt, l.cfg.ChunkSize, true) {
		content := make([]uint64, 0, key.end-from)
		for i := from; i < key.end; i++ {
			content = append(content, *e.pool.Slot(r.blocks, i))
		}
		h.keys, h.content, from = append(h.keys, key.hash), append(h.content, content), key.end
	}
	return h
}

// introduce learns once which process a receiver is. A process that is restarted at the same address is another one, and the sender never
// learns it (measured: the sender keeps its peers by the spelling of host and init port for its life).
func (l *lmcache) introduce(h *handover, rank int) error {
	at := peerAddress(h.spec.Host, h.spec.InitPorts[rank])
	l.mu.Lock()
	_, known := l.receivers[at]
	l.mu.Unlock()
	if known {
		return nil
	}
	reply, err := l.links.call(l.engine.ctx, at, sideRequest{Push: &pushRequest{Op: pushInit}})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receivers[at] = reply.EngineID
	return nil
}

func (l *lmcache) ask(h *handover, p pushRequest) error {
	l.mu.Lock()
	id := l.receivers[peerAddress(h.spec.Host, h.spec.InitPorts[p.Rank])]
	l.mu.Unlock()
	_, err := l.links.call(l.engine.ctx, peerAddress(h.spec.Host, h.spec.AllocPorts[p.Rank]), sideRequest{EngineID: id, Push: &p})
	return err
}

// noRoomDelay is how often a rank asks again while a receiver has no space, in wall time (the async backend waits without a limit by
// default).
const noRoomDelay = 10 * time.Millisecond

// allocate makes the receiver allocate space for the shares of all ranks, however long that takes.
func (l *lmcache) allocate(h *handover) bool {
	for rank := range h.ranks {
		p := pushRequest{Op: pushAllocate, Rank: rank, Ranks: l.cfg.Savers(), Keys: h.keys}
		for err := l.ask(h, p); err != nil; err = l.ask(h, p) {
			if !errors.Is(err, errNoRoom) || l.engine.clock.wait(l.engine.ctx, l.engine.clock.scaled(noRoomDelay)) != nil {
				return false
			}
		}
	}
	l.engine.count(func(s *Stats) { s.Pushes++ })
	return true
}

// deliver writes and announces the share of each rank of a hand-over that is counted in Pushing. It returns false if the receiver has gone
// or the engine ends.
func (l *lmcache) deliver(h *handover) bool {
	e := l.engine
	defer e.count(func(s *Stats) { s.Pushing-- })
	if !l.allocate(h) {
		return false
	}
	for rank := range h.ranks {
		if e.clock.wait(e.ctx, h.takes/time.Duration(h.ranks)) != nil {
			return false
		}
		p := pushRequest{Op: pushLand, Rank: rank, Ranks: l.cfg.Savers(), Keys: h.keys, Content: h.content}
		switch {
		case h.fault.Is(fault.TransferStuck):
			return true
		case h.fault.Is(fault.TransferFails):
			p.Op, p.Content = pushCancel, nil
		}
		if l.ask(h, p) != nil || e.clock.wait(e.ctx, l.cfg.NotifyDelay) != nil {
			return false
		}
		if p.Op == pushLand {
			e.count(func(s *Stats) { s.ChunksPushed += len(p.Keys) })
		}
		l.announce(e.ctx, h, rank)
		if p.Op == pushCancel {
			return true
		}
	}
	return true
}

// announce tells the proxy about a share that has landed, or does what the fault of the request says.
func (l *lmcache) announce(ctx context.Context, h *handover, rank int) {
	var frames [][]byte
	frame := l.notification(h.spec.ReqID, rank, "READY")
	switch {
	case h.fault.Is(fault.NoticeLost):
	case h.fault.Is(fault.TransferFails):
		if l.cfg.Tag == config.TagStoragePDStatus {
			frames = [][]byte{l.notification(h.spec.ReqID, rank, "FAILED")}
		}
	case h.fault.Is(fault.NoticeTwice):
		frames = [][]byte{frame, frame}
	case h.fault.Is(fault.NoticeGarbage):
		frames = append(noNotifications(h.spec.ReqID), frame)
	default:
		frames = [][]byte{frame}
	}
	for _, f := range frames {
		if l.notifiers[rank].push(ctx, f) {
			l.engine.count(func(s *Stats) { s.Notices++ })
		}
	}
}
