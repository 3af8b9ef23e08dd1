package vllmsim

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

const (
	pingInterval = 3 * time.Second // in engine time (p2p_nccl_engine.py, ping; MoRIIOConstants.PING_INTERVAL)
	// pingRedial is libzmq's RECONNECT_IVL, and pingGreeting the time limit of a handshake, both in wall time.
	pingRedial   = 100 * time.Millisecond
	pingGreeting = 5 * time.Second
	// pingLongest bounds a frame of the proxy, which sends only its READY.
	pingLongest = 1 << 16
)

// register announces the instance until ctx ends: at once, every three seconds, and again when a proxy that was gone is back. An instance
// with a closed port stands for a process that has ended, and announces nothing.
func (i *Instance) register(ctx context.Context) {
	for ctx.Err() == nil {
		if !i.faults.Refuses() {
			_ = i.pingUntil(ctx) // whatever ended it, register tries again
		}
		select {
		case <-time.After(pingRedial):
		case <-ctx.Done():
		}
	}
}

// pingUntil announces the instance over one connection until the connection ends.
func (i *Instance) pingUntil(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", i.config().Registration.Proxy)
	if err != nil {
		return fmt.Errorf("dial the proxy: %w", err)
	}
	if !i.track(conn) { // the end of the process closes this connection too
		return conn.Close()
	}
	defer i.untrack(conn)
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := dealerReady(conn, i.pingIdentity()); err != nil {
		return err
	}
	i.serving.Spawn(func() {
		defer gone()
		_, _ = io.Copy(io.Discard, conn) // a ROUTER that takes registrations sends nothing; the copy ends with the connection
	})
	for {
		message := i.announcement()
		if _, err := conn.Write(append([]byte{0, byte(len(message))}, message...)); err != nil {
			return fmt.Errorf("announce: %w", err)
		}
		if err := i.clock.Wait(ctx, pingInterval); err != nil {
			return err
		}
	}
}

// dealerReady does the DEALER's part of a handshake (ZMTP 3.0, rfc.zeromq.org/spec/23, mechanism NULL).
func dealerReady(conn net.Conn, identity string) error {
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
	ready := []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
	ready = append(binary.BigEndian.AppendUint32(append(ready, "\x08Identity"...), uint32(len(identity))), identity...)
	if err := conn.SetDeadline(time.Now().Add(pingGreeting)); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	if _, err := conn.Write(append(greeting, append([]byte{4, byte(len(ready))}, ready...)...)); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	in := bufio.NewReaderSize(conn, pingLongest)
	if theirs, err := in.Peek(64); err != nil || theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 {
		return fmt.Errorf("not ZMTP 3: %w", errors.Join(err, errNoRouter))
	}
	if _, err := in.Discard(64); err != nil {
		return fmt.Errorf("read greeting: %w", err)
	}
	head, err := in.Peek(2)
	if err != nil || head[0] != 4 {
		return fmt.Errorf("no READY: %w", errors.Join(err, errNoRouter))
	}
	if _, err := in.Discard(2 + int(head[1])); err != nil {
		return fmt.Errorf("read READY: %w", err)
	}
	return conn.SetDeadline(time.Time{})
}

var errNoRouter = errors.New("the proxy has no ROUTER there")

// registers reports whether the instance announces itself.
func (i *Instance) registers() bool {
	c := i.config()
	return c.Registration.Proxy != "" && (c.Connector == config.ConnectorMoRIIO || c.Connector == config.ConnectorP2PNCCL)
}

// KVAddress returns zmq_address, where other engines reach the instance. Rank r of a data-parallel group has the port r above rank 0's.
func (i *Instance) KVAddress() string {
	c, port := i.config(), i.ranks[0].sidePort
	if c.Connector == config.ConnectorP2PNCCL {
		return engine.PeerAddress(c.Host, port)
	}
	return fmt.Sprintf("host:%s,handshake:%d,notify:%d", c.Host, port, port)
}

// pingIdentity returns the identity of the DEALER, which only P2P-NCCL sets.
func (i *Instance) pingIdentity() string {
	if i.config().Connector == config.ConnectorP2PNCCL {
		return i.KVAddress()
	}
	return ""
}

// announcement returns the message of a ping.
func (i *Instance) announcement() []byte {
	c := i.config()
	role := "D"
	if c.Role == "prefill" {
		role = "P"
	}
	mode := "WRITE"
	if c.MoRIIO.Read {
		mode = "READ"
	}
	sizes := []any{"dp_size", c.DPRanks, "tp_size", 1, "transfer_mode", mode}
	port := i.ranks[0].sidePort
	switch {
	case c.Connector == config.ConnectorP2PNCCL:
		return pingMap("type", role, "http_address", i.address, "zmq_address", i.KVAddress())
	case c.Registration.Before:
		return pingMap(append([]any{
			"type", "register", "role", role, "index", "1", "request_address", "http://" + i.address + pathCompletions,
			"handshake_port", port, "notify_port", port,
		}, sizes...)...)
	default:
		return pingMap(append([]any{"type", role, "http_address", i.address, "zmq_address", i.KVAddress()}, sizes...)...)
	}
}

// pingMap encodes a map in MessagePack. Its values are texts below 256 bytes and numbers below 65536.
func pingMap(members ...any) []byte {
	b := []byte{0x80 | byte(len(members)/2)}
	for _, m := range members {
		switch m := m.(type) {
		case string:
			if len(m) > 31 {
				b = append(b, 0xd9, byte(len(m)))
			} else {
				b = append(b, 0xa0|byte(len(m)))
			}
			b = append(b, m...)
		case int:
			if m > 127 {
				b = binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(m))
			} else {
				b = append(b, byte(m))
			}
		}
	}
	return b
}
