package kvready

import (
	"context"
	"net"

	"carryover/upstream/zmq/zmtp"
)

// Serve listens to prefill workers on l until ctx ends or l is closed. When ctx ends it returns the cause. It closes l. A worker
// is a PUSH socket that connects when it starts and sends a message of one frame for each request. If a message has more frames,
// each is read as a notification.
func (w *Waits) Serve(ctx context.Context, l net.Listener) error {
	server := zmtp.Server{
		Limits: zmtp.Limits{MaxPeers: w.cfg.MaxPeers}, Logger: w.cfg.Logger,
		Handle: func(frames [][]byte) {
			for _, frame := range frames {
				w.Notify(frame)
			}
		},
	}
	return server.Serve(ctx, l)
}
