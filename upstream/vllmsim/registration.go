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
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

const (
	pingInterval = 3 * time.Second // in engine time (MoRIIOConstants.PING_INTERVAL)
	// pingRedial is libzmq's RECONNECT_IVL, and pingGreeting the time limit of a handshake, both in wall time.
	pingRedial   = 100 * time.Millisecond
	pingGreeting = 5 * time.Second
	// pingLongest bounds a frame of the proxy, which sends only its READY.
	pingLongest = 1 << 16
)

// registrar announces an instance to a proxy.
type registrar struct {
	config   func() *config.Config
	faults   *fault.Set
	clock    *engine.Clock
	network  *network
	sidePort int // of rank 0
}

func (i *Instance) registrar() *registrar {
	return &registrar{config: i.config, faults: &i.faults, clock: i.clock, network: &i.network, sidePort: i.ranks[0].sidePort}
}

// registers reports whether an instance announces itself.
func registers(c *config.Config) bool {
	return c.Registration.Proxy != "" && c.Connector == config.ConnectorMoRIIO
}

// run announces the instance until ctx ends: at once, every three seconds, and again when a proxy that was gone is back. An instance
// with a closed port stands for a process that has ended, and announces nothing.
func (r *registrar) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !r.faults.Refuses() {
			_ = r.pingUntil(ctx) // whatever ended it, run tries again
		}
		select {
		case <-time.After(pingRedial):
		case <-ctx.Done():
		}
	}
}

// pingUntil announces the instance over one connection until the connection ends.
func (r *registrar) pingUntil(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", r.config().Registration.Proxy)
	if err != nil {
		return fmt.Errorf("dial the proxy: %w", err)
	}
	if !r.network.track(conn) { // the end of the process closes this connection too
		return conn.Close()
	}
	defer r.network.untrack(conn)
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := dealerReady(conn); err != nil {
		return err
	}
	r.network.serving.Spawn(func() {
		defer gone()
		_, _ = io.Copy(io.Discard, conn) // a ROUTER that takes registrations sends nothing; the copy ends with the connection
	})
	for {
		message := r.announcement()
		if _, err := conn.Write(append([]byte{0, byte(len(message))}, message...)); err != nil {
			return fmt.Errorf("announce: %w", err)
		}
		if err := r.clock.Wait(ctx, pingInterval); err != nil {
			return err
		}
	}
}

// dealerReady does the DEALER's part of a handshake (ZMTP 3.0, rfc.zeromq.org/spec/23, mechanism NULL).
func dealerReady(conn net.Conn) error {
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
	ready := []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00")
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

// announcement returns the message of a ping.
func (r *registrar) announcement() []byte {
	c, kv := r.config(), kvAddress(r.config(), r.sidePort)
	role := "D"
	if c.Role == "prefill" {
		role = "P"
	}
	mode := "WRITE"
	if c.MoRIIO.Read {
		mode = "READ"
	}
	sizes := []any{"dp_size", c.DPRanks, "tp_size", 1, "transfer_mode", mode}
	if c.Registration.Before {
		return pingMap(append([]any{
			"type", "register", "role", role, "index", "1", "request_address", "http://" + r.network.address + wire.PathCompletions,
			"handshake_port", r.sidePort, "notify_port", r.sidePort,
		}, sizes...)...)
	}
	return pingMap(append([]any{"type", role, "http_address", r.network.address, "zmq_address", kv}, sizes...)...)
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
