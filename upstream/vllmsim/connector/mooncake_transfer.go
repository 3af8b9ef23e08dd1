package connector

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"carryover/upstream/vllmsim/engine"
)

// opMooncake asks prefill to push the KV of the transfer RequestID into Blocks as soon as the KV is complete.
const opMooncake engine.SideOp = 32

// Times measured on 0.32, in engine time.
const (
	MooncakeUnknown     = 300 * time.Millisecond // until a request fails if the bootstrap server does not know its engine id
	MooncakeUnreachable = 600 * time.Millisecond // until it fails if its bootstrap server does not answer
	mooncakeDead        = time.Minute            // until it fails, beyond the time limit, if its engine was known and is gone
)

type mooncakeTransfer struct {
	blocks   []int32 // blocks to fill; without any, the transfer only frees prefill's
	perBlock time.Duration
	ended    chan struct{}
	err      error   // read after ended
	orphans  []int32 // blocks of a request that ended before the transfer; the engine's mutex guards them
}

// load runs a transfer until it or the engine ends.
func (m *mooncake) load(p *engine.ParamsIn, t *mooncakeTransfer) {
	e := m.Engine
	content, err := m.pull(e.Ctx, p, t)
	e.Mu.Lock()
	defer e.Mu.Unlock()
	size := e.Cfg.BlockSize
	for i := range len(content) / size {
		copy(e.Pool.Slots(t.blocks[i]), content[i*size:(i+1)*size])
	}
	t.err = err
	close(t.ended)
	e.Free(t.orphans)
}

// pull asks prefill for the KV and waits for it. It asks the bootstrap server about unknown engine ids.
func (m *mooncake) pull(ctx context.Context, p *engine.ParamsIn, t *mooncakeTransfer) ([]uint64, error) {
	e, id := m.Engine, p.Text("remote_engine_id")
	began := e.Clock.Now()
	addr, err := m.worker(id), error(nil)
	if addr == "" {
		if err = m.query(ctx, p.Text("remote_bootstrap_addr")); err != nil {
			return nil, errors.Join(err, e.Clock.Wait(ctx, MooncakeUnreachable))
		}
		if addr = m.worker(id); addr == "" {
			return nil, errors.Join(fmt.Errorf("remote engine_id %s not found from bootstrap server", id), e.Clock.Wait(ctx, MooncakeUnknown))
		}
	}
	reply, err := m.ask(ctx, addr, engine.SideRequest{Op: opMooncake, EngineID: id, RequestID: p.Text("transfer_id"), Blocks: t.blocks})
	if err != nil { // the address belonged to a process that is gone
		return nil, errors.Join(err, e.Clock.Wait(ctx, e.Cfg.Mooncake.AbortTimeout+mooncakeDead-(e.Clock.Now()-began)))
	}
	if reply.Err != "" {
		return nil, fmt.Errorf("prefill: %s", reply.Err)
	}
	return reply.Content, e.Clock.Wait(ctx, time.Duration(len(t.blocks))*t.perBlock)
}

// worker returns the address of an engine, "" if it is unknown.
func (m *mooncake) worker(engineID string) string {
	m.Engine.Mu.Lock()
	defer m.Engine.Mu.Unlock()
	return m.known[engineID]
}

func (m *mooncake) query(ctx context.Context, bootstrap string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, bootstrap+"/query", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: max(m.Engine.Clock.Real(engine.PeerTimeout), time.Second)}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the useful part has been read
	var all map[int]MooncakeEntry
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("bootstrap server: status %d", resp.StatusCode))
	}
	m.Engine.Mu.Lock()
	defer m.Engine.Mu.Unlock()
	for _, entry := range all {
		m.known[entry.EngineID] = strings.TrimPrefix(entry.WorkerAddr[0][0], "tcp://")
	}
	return nil
}

// ask sends one request to a worker and waits for the answer, which comes with the KV.
func (m *mooncake) ask(ctx context.Context, addr string, req engine.SideRequest) (reply engine.SideReply, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return reply, err
	}
	defer func() { _ = conn.Close() }() // nothing to lose
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := gob.NewEncoder(conn).Encode(req); err != nil {
		return reply, err
	}
	if err := gob.NewDecoder(conn).Decode(&reply); err != nil {
		return reply, err
	}
	if reply.Err == engine.ErrEngineMismatch.Error() {
		return reply, engine.ErrEngineMismatch
	}
	return reply, nil
}

// Answer waits for the KV of a transfer, up to the time limit. After one decode leg has got it, another leg of the same transfer waits in
// vain.
func (m *mooncake) Answer(req engine.SideRequest) (engine.SideReply, bool) {
	if req.Op != opMooncake {
		return engine.SideReply{}, false
	}
	e := m.Engine
	if req.EngineID != e.ID {
		e.Count(&e.Stats.StaleReads, 1)
		return engine.SideReply{Err: engine.ErrEngineMismatch.Error()}, true
	}
	limit := time.NewTimer(e.Clock.Real(e.Cfg.Mooncake.AbortTimeout))
	defer limit.Stop()
	for {
		reply, sent, finished := m.send(req)
		if sent {
			return reply, true
		}
		select {
		case <-finished:
		case <-limit.C:
			return engine.SideReply{Err: "Timeout waiting for P side ready."}, true
		case <-e.Ctx.Done():
			return engine.SideReply{Err: engine.ErrEngineMismatch.Error()}, true
		}
	}
}

// send gives away the last blocks of a transfer, one for each of decode's blocks, and compares nothing else (_build_transfer_params). sent is
// false while the transfer has no KV; finished closes when there may be some.
func (m *mooncake) send(req engine.SideRequest) (reply engine.SideReply, sent bool, finished <-chan struct{}) {
	e := m.Engine
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.Expire()
	p, ok := e.Pins.Held[req.RequestID]
	if !ok {
		return reply, false, m.finished
	}
	more := len(p.Blocks) - len(req.Blocks)
	if more < 0 {
		return engine.SideReply{Err: "P num blocks less than D"}, true, nil // prefill's blocks stay until the time limit
	}
	for _, id := range p.Blocks[more:] {
		reply.Content = append(reply.Content, e.Pool.Slots(id)...)
	}
	e.Free(p.Blocks)
	e.Pins.Finish(req.RequestID, engine.OutcomeRead)
	if len(req.Blocks) == 0 {
		e.Stats.Releases++
	} else {
		e.Stats.Reads++
	}
	return reply, true, nil
}

// MooncakeEntry is one data-parallel rank in the answer to /query (mooncake_utils.py, EngineEntry).
type MooncakeEntry struct {
	EngineID   string                 `json:"engine_id"`
	WorkerAddr map[int]map[int]string `json:"worker_addr"` // by tensor-parallel and pipeline-parallel rank
}
