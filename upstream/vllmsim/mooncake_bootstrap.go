package vllmsim

import (
	"fmt"
	"net"
	"net/http"
	"strconv"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/connector"
	"carryover/upstream/vllmsim/wire"
)

// bootstrap is the server beside a prefill instance that lists its engines. In vLLM the worker of rank 0 runs it; here the instance does, so
// that its port outlives restarts.
type bootstrap struct {
	server   *http.Server
	listener net.Listener
}

// openBootstrap listens on the HTTP server's host. It returns nil for an instance without a bootstrap server.
func openBootstrap(cfg *config.Config, n *network, ranks []*rank) (*bootstrap, error) {
	if cfg.Connector != config.ConnectorMooncake || cfg.Role == "decode" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(n.address)
	if err != nil {
		return nil, fmt.Errorf("listen for bootstrap: %w", err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(cfg.Mooncake.BootstrapPort)))
	if err != nil {
		return nil, fmt.Errorf("listen for bootstrap: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /query", func(w http.ResponseWriter, _ *http.Request) {
		_ = wire.WriteJSON(w, http.StatusOK, entries(ranks)) // the reader may have gone
	})
	b := &bootstrap{listener: l, server: n.newServer(mux)}
	n.serving.Spawn(func() {
		_ = b.server.Serve(l) // ends when it is closed
	})
	return b, nil
}

func entries(ranks []*rank) map[int]connector.MooncakeEntry {
	all := make(map[int]connector.MooncakeEntry, len(ranks))
	for n, r := range ranks {
		all[n] = connector.MooncakeEntry{
			EngineID: r.engine.Load().ID, WorkerAddr: map[int]map[int]string{0: {0: "tcp://" + r.side.Addr().String()}},
		}
	}
	return all
}

func (b *bootstrap) close() {
	if b != nil {
		_ = b.server.Close() // nothing to lose
		_ = b.listener.Close()
	}
}
