package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/upstream"
	"carryover/upstream/zmtp"
)

// ZMQ has the instances that announce themselves over ZeroMQ, as engines with P2P-NCCL and MoRI-IO do: rank 0 of each has a
// DEALER that says every three seconds who it is (vLLM p2p_nccl_engine.py and moriio_connector.py, ping). Nothing is answered.
//
// A peer that reaches the port decides where turns go, their prompts included: it belongs on the loopback address or on a network that only
// engines are in, and Allow says where these are. What one peer announces no other peer can change as long as the first goes on.
type ZMQ struct {
	// Listen is host:port of the ROUTER, an empty host for every address of this machine. Listener is one that listens
	// already, in place of it; Watch closes it.
	Listen   string
	Listener net.Listener
	// TTL is how long an instance stays that does not announce itself any more; 10 s if zero. Three announcements may be
	// lost then. The 5 s of vLLM's example lose an engine with the first.
	TTL time.Duration
	// Allow is where engines may be: host and port of the HTTP address that they announce, and the host of their KV address. Empty
	// permits all.
	Allow []Pattern
	// Own reports whether host:port is the program itself, which is no engine; nil says of nothing that it is.
	Own    func(authority string) bool
	Logger *slog.Logger // nil discards

	refused refusals
}

// Refused is what was not taken for an engine since the start. It is safe for concurrent use.
func (z *ZMQ) Refused() Refusals { return z.refused.read() }

const (
	defaultTTL = 10 * time.Second
	// sweepInterval is how often the source looks for instances that have gone silent.
	sweepInterval = time.Second
	// maxAnnouncement is several times as large as the longest announcement that is accepted.
	maxAnnouncement = 8 << 10
	// maxAnnouncers leaves room for the old connections of engines that have been restarted.
	maxAnnouncers = MaxRegistered + 256
)

// Watch listens, and sets the list of instances that have announced themselves, which is empty at first, again whenever that changes, until ctx
// ends. It fails if it can't listen.
func (z *ZMQ) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	listener := z.Listener
	if listener == nil {
		var err error
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", z.Listen); err != nil {
			return fmt.Errorf("listen for registrations: %w", err)
		}
	}
	heard := newRegistrations(z, &z.refused)
	server := zmtp.Server{
		Kind: zmtp.Router, Limits: zmtp.Limits{MaxFrame: maxAnnouncement, MaxParts: 2, MaxPeers: maxAnnouncers},
		Handle: heard.take, Logger: heard.log,
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		heard.list.watch(ctx, set)
		return nil
	})
	group.Go(func() error { return heard.sweepUntil(ctx) })
	group.Go(func() error {
		if err := server.Serve(ctx, listener); ctx.Err() == nil {
			return fmt.Errorf("registrations: %w", err)
		}
		return nil
	})
	return group.Wait()
}

var _ upstream.Source = (*ZMQ)(nil)
