package vllmsim

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
)

// opMooncake asks prefill to push the KV of the transfer RequestID into Blocks as soon as the KV is complete.
const opMooncake sideOp = 32

// Times measured on 0.32, in engine time.
const (
	mooncakeUnknown     = 300 * time.Millisecond // until a request fails if the bootstrap server does not know its engine id
	mooncakeUnreachable = 600 * time.Millisecond // until it fails if its bootstrap server does not answer
	mooncakeDead        = time.Minute            // until it fails, beyond the time limit, if its engine was known and is gone
)

// mooncakeTransfer is KV under way to a decode leg.
type mooncakeTransfer struct {
	blocks   []int32 // blocks to be filled; without any, the transfer only frees prefill's
	perBlock time.Duration
	ended    chan struct{}
	err      error   // read after ended
	orphans  []int32 // blocks of a request that has ended before; the engine's mutex guards them
}

// load runs a transfer to its end. The end of the engine ends it too.
func (m *mooncake) load(p *paramsIn, t *mooncakeTransfer) {
	e := m.engine
	content, err := m.pull(e.ctx, p, t)
	e.mu.Lock()
	defer e.mu.Unlock()
	size := e.cfg.BlockSize
	for i := range len(content) / size {
		copy(e.pool.Slots(t.blocks[i]), content[i*size:(i+1)*size])
	}
	t.err = err
	close(t.ended)
	e.free(t.orphans)
}

// pull asks prefill for the KV and waits for it. It asks the bootstrap server about unknown engine ids.
func (m *mooncake) pull(ctx context.Context, p *paramsIn, t *mooncakeTransfer) ([]uint64, error) {
	e, id := m.engine, p.text("remote_engine_id")
	began := e.clock.now()
	addr, err := m.worker(id), error(nil)
	if addr == "" {
		if err = m.query(ctx, p.text("remote_bootstrap_addr")); err != nil {
			return nil, errors.Join(err, e.clock.wait(ctx, mooncakeUnreachable))
		}
		if addr = m.worker(id); addr == "" {
			return nil, errors.Join(fmt.Errorf("remote engine_id %s not found from bootstrap server", id), e.clock.wait(ctx, mooncakeUnknown))
		}
	}
	reply, err := m.ask(ctx, addr, sideRequest{Op: opMooncake, EngineID: id, RequestID: p.text("transfer_id"), Blocks: t.blocks})
	if err != nil { // a process that is gone had this address
		return nil, errors.Join(err, e.clock.wait(ctx, e.cfg.Mooncake.AbortTimeout+mooncakeDead-(e.clock.now()-began)))
	}
	if reply.Err != "" {
		return nil, fmt.Errorf("prefill: %s", reply.Err)
	}
	return reply.Content, e.clock.wait(ctx, time.Duration(len(t.blocks))*t.perBlock)
}

// worker returns the address of an engine, "" if it is unknown.
func (m *mooncake) worker(engineID string) string {
	m.engine.mu.Lock()
	defer m.engine.mu.Unlock()
	return m.known[engineID]
}

// query asks a bootstrap server for its engines.
func (m *mooncake) query(ctx context.Context, bootstrap string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, bootstrap+"/query", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: max(m.engine.clock.real(peerTimeout), time.Second)}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the useful part has been read
	var all map[int]mooncakeEntry
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("bootstrap server: status %d", resp.StatusCode))
	}
	m.engine.mu.Lock()
	defer m.engine.mu.Unlock()
	for _, entry := range all {
		m.known[entry.EngineID] = strings.TrimPrefix(entry.WorkerAddr[0][0], "tcp://")
	}
	return nil
}

// ask sends one request to a worker and waits for the answer, which comes together with the KV.
func (m *mooncake) ask(ctx context.Context, addr string, req sideRequest) (reply sideReply, err error) {
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
	if reply.Err == errEngineMismatch.Error() {
		return reply, errEngineMismatch
	}
	return reply, nil
}

// answer waits for the KV of a transfer, up to the time limit. Once a decode leg has got it, another leg of the same transfer waits in
// vain.
func (m *mooncake) answer(req sideRequest) (sideReply, bool) {
	if req.Op != opMooncake {
		return sideReply{}, false
	}
	e := m.engine
	if req.EngineID != e.id {
		e.count(func(s *Stats) { s.StaleReads++ })
		return sideReply{Err: errEngineMismatch.Error()}, true
	}
	limit := time.NewTimer(e.clock.real(e.cfg.Mooncake.AbortTimeout))
	defer limit.Stop()
	for {
		reply, sent, finished := m.send(req)
		if sent {
			return reply, true
		}
		select {
		case <-finished:
		case <-limit.C:
			return sideReply{Err: "Timeout waiting for P side ready."}, true
		case <-e.ctx.Done():
			return sideReply{Err: errEngineMismatch.Error()}, true
		}
	}
}

// send gives away the last blocks of a transfer, as many as decode has blocks for, and compares nothing else (_build_transfer_params).
// sent is false while the transfer has no KV; the channel finished is closed when there may be some.
func (m *mooncake) send(req sideRequest) (reply sideReply, sent bool, finished <-chan struct{}) {
	e := m.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire()
	p, ok := e.pins.held[req.RequestID]
	if !ok {
		return reply, false, m.finished
	}
	more := len(p.blocks) - len(req.Blocks)
	if more < 0 {
		return sideReply{Err: "P num blocks less than D"}, true, nil // they stay in place until the time limit
	}
	for _, id := range p.blocks[more:] {
		reply.Content = append(reply.Content, e.pool.Slots(id)...)
	}
	e.free(p.blocks)
	e.pins.finish(req.RequestID, outcomeRead)
	if len(req.Blocks) == 0 {
		e.stats.Releases++
	} else {
		e.stats.Reads++
	}
	return reply, true, nil
}
