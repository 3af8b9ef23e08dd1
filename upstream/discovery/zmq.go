package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp"
)

// ZMQ has the instances that announce themselves over ZeroMQ, as engines with MoRI-IO do: rank 0 of each sends an
// announcement from a DEALER socket every three seconds (vLLM moriio_connector.py, ping). Nothing is answered.
//
// A peer that reaches the port decides where turns and their prompts go. So the port belongs on the loopback address
// or on a network of engines only, and Allow says where engines may be. As long as a peer keeps announcing an instance,
// no other peer can change it.
type ZMQ struct {
	// Listen is the host:port of the ROUTER socket; an empty host means every address of this machine. Listener is an
	// open listener in place of Listen; Watch closes it.
	Listen   string
	Listener net.Listener
	// TTL is how long an instance stays without a new announcement; 0 means 10 s, so that three announcements may be
	// lost. With the 5 s of vLLM's example, one lost announcement loses an engine.
	TTL time.Duration
	// Allow says where engines may be. It applies to host and port of the HTTP address that they announce, and to the host of their
	// KV address. If it is empty, all are permitted.
	Allow []Pattern
	// Own reports whether host:port is an address of this program, which is no engine. nil means that no address is.
	Own    func(authority string) bool
	Logger *slog.Logger // nil discards

	refused refusals
}

// Refused returns how many announcements were refused since the start. It is safe for concurrent use.
func (z *ZMQ) Refused() Refusals { return z.refused.read() }

const (
	defaultTTL = 10 * time.Second
	// sweepInterval is how often the source looks for instances that have gone silent.
	sweepInterval = time.Second
	// maxAnnouncement is several times as large as the longest announcement that is accepted.
	maxAnnouncement = 8 << 10
	// maxAnnouncers includes the old connections of engines that have been restarted.
	maxAnnouncers = MaxRegistered + 256
)

// Watch listens and sets the list of announced instances, at first an empty one, again whenever it changes, until ctx
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
