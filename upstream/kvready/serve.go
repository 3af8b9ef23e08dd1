package kvready

import (
	"context"
	"net"

	"carryover/upstream/zmtp"
)

// Serve listens to prefill workers on l until ctx ends, and returns the cause then, or until l is closed. It closes l. A
// worker is a PUSH socket that connects at its start and says one frame for each request; further frames are read like it.
func (w *Waits) Serve(ctx context.Context, l net.Listener) error {
	server := zmtp.Server{
		Kind: zmtp.Pull, Limits: zmtp.Limits{MaxPeers: w.cfg.MaxPeers}, Logger: w.cfg.Logger,
		Handle: func(m zmtp.Message) {
			for _, frame := range m.Frames {
				w.Notify(frame)
			}
		},
	}
	return server.Serve(ctx, l)
}
