package connector

import (
	"context"
	"time"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
)

type handover struct {
	spec    disaggSpec
	ranks   int // ranks that save and have ports in the spec
	keys    []uint64
	content [][]uint64
	takes   time.Duration // engine time for all shares together
	fault   *fault.Active
}

// newHandover copies the KV of a prompt: all of it, even what the receiver already has, and a last chunk that is not full
// (save_unfull_chunk).
func (l *lmcache) newHandover(r *engine.Run, spec disaggSpec) *handover {
	prompt := r.Req.Prompt
	h := &handover{spec: spec, fault: r.Req.Fault}
	// A rank without a port fails alone: the answer comes, but this rank stores and announces nothing.
	h.ranks = min(l.cfg.Savers(), len(h.spec.InitPorts), len(h.spec.AllocPorts))
	h.takes = time.Duration(engine.CeilDiv(len(prompt), l.Engine.Cfg.BlockSize)) * r.Timing().TransferPerBlock
	content, from := r.Content(), 0
	for _, key := range chunkKeys(r.Req.Seed^tags(r.Req.Params), prompt, l.cfg.ChunkSize, true) {
		h.keys, h.content, from = append(h.keys, key.hash), append(h.content, content[from:key.end]), key.end
	}
	return h
}

// introduce learns once which process a receiver is. The sender never notices that another process was started at the same address (measured:
// it keeps its peers by the spelling of host and init port for its life).
func (l *lmcache) introduce(h *handover, rank int) error {
	at := engine.PeerAddress(h.spec.Host, h.spec.InitPorts[rank])
	if _, known := l.receivers.Load(at); known {
		return nil
	}
	reply, err := l.links.Call(l.Engine.Ctx, at, engine.SideRequest{Push: &engine.PushRequest{Op: engine.PushInit}})
	if err != nil {
		return err
	}
	l.receivers.Store(at, reply.EngineID)
	return nil
}

func (l *lmcache) ask(h *handover, p engine.PushRequest) error {
	id, _ := l.receivers.Load(engine.PeerAddress(h.spec.Host, h.spec.InitPorts[p.Rank]))
	_, err := l.links.Call(l.Engine.Ctx, engine.PeerAddress(h.spec.Host, h.spec.AllocPorts[p.Rank]), engine.SideRequest{EngineID: id.(string), Push: &p})
	return err
}

func (l *lmcache) allocate(h *handover) bool {
	for rank := range h.ranks {
		if l.ask(h, engine.PushRequest{Op: engine.PushAllocate, Rank: rank, Ranks: l.cfg.Savers(), Keys: h.keys}) != nil {
			return false
		}
	}
	l.Engine.Count(&l.Engine.Stats.Pushes, 1)
	return true
}

// deliver writes and announces the share of each rank. The hand-over counts in Pushing. It returns false if the receiver has gone or the
// engine ends.
func (l *lmcache) deliver(h *handover) bool {
	e := l.Engine
	defer e.Count(&e.Stats.Pushing, -1)
	if !l.allocate(h) {
		return false
	}
	for rank := range h.ranks {
		if e.Clock.Wait(e.Ctx, h.takes/time.Duration(h.ranks)) != nil {
			return false
		}
		p := engine.PushRequest{Op: engine.PushLand, Rank: rank, Ranks: l.cfg.Savers(), Keys: h.keys, Content: h.content}
		switch {
		case h.fault.Is(fault.TransferStuck):
			return true
		case h.fault.Is(fault.TransferFails):
			p.Op, p.Content = engine.PushCancel, nil
		}
		if l.ask(h, p) != nil || e.Clock.Wait(e.Ctx, l.cfg.NotifyDelay) != nil {
			return false
		}
		if p.Op == engine.PushLand {
			e.Count(&e.Stats.ChunksPushed, len(p.Keys))
		}
		l.announce(e.Ctx, h, rank)
		if p.Op == engine.PushCancel {
			return true
		}
	}
	return true
}

// announce notifies the proxy of a share that has landed, unless the request's fault says otherwise.
func (l *lmcache) announce(ctx context.Context, h *handover, rank int) {
	var frames [][]byte
	frame := Notification(l.cfg.Tag, h.spec.ReqID, rank, "READY")
	switch {
	case h.fault.Is(fault.NoticeLost):
	case h.fault.Is(fault.TransferFails):
		if l.cfg.Tag == config.TagStoragePDStatus {
			frames = [][]byte{Notification(l.cfg.Tag, h.spec.ReqID, rank, "FAILED")}
		}
	case h.fault.Is(fault.NoticeTwice):
		frames = [][]byte{frame, frame}
	case h.fault.Is(fault.NoticeGarbage):
		frames = append(NoNotifications(h.spec.ReqID), frame)
	default:
		frames = [][]byte{frame}
	}
	for _, f := range frames {
		if l.notifiers[rank].push(ctx, f) {
			l.Engine.Count(&l.Engine.Stats.Notices, 1)
		}
	}
}
