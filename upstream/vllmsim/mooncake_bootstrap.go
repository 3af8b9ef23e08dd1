package vllmsim

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/connector"
)

// bootstrap is the server beside a prefill instance that lists its engines. In vLLM the worker of rank 0 runs it; here the instance does,
// so that its port outlives restarts.
type bootstrap struct {
	server   *http.Server
	listener net.Listener
}

// openBootstrap listens on the HTTP server's host.
func (i *Instance) openBootstrap() error {
	cfg := i.config()
	if cfg.Connector != config.ConnectorMooncake || cfg.Role == "decode" {
		return nil
	}
	host, _, err := net.SplitHostPort(i.address)
	if err != nil {
		return fmt.Errorf("listen for bootstrap: %w", err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(cfg.Mooncake.BootstrapPort)))
	if err != nil {
		return fmt.Errorf("listen for bootstrap: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /query", i.serveQuery)
	i.bootstrap = &bootstrap{listener: l, server: &http.Server{
		Handler: mux, ConnState: i.connState, IdleTimeout: keepAlive, ReadHeaderTimeout: time.Minute,
	}}
	i.serving.Spawn(func() {
		_ = i.bootstrap.server.Serve(l) // ends when it is closed
	})
	return nil
}

// closeBootstrap ends the server.
func (i *Instance) closeBootstrap() {
	if i.bootstrap != nil {
		_ = i.bootstrap.server.Close() // nothing to lose
		_ = i.bootstrap.listener.Close()
	}
}

// BootstrapPort returns the port of the bootstrap server of Mooncake's prefill instances, 0 if there is none.
func (i *Instance) BootstrapPort() int {
	if i.bootstrap == nil {
		return 0
	}
	return i.bootstrap.listener.Addr().(*net.TCPAddr).Port
}

// BootstrapURL returns the base URL of the bootstrap server.
func (i *Instance) BootstrapURL() string {
	host, _, _ := net.SplitHostPort(i.address)
	return "http://" + net.JoinHostPort(host, strconv.Itoa(i.BootstrapPort()))
}

func (i *Instance) serveQuery(w http.ResponseWriter, _ *http.Request) {
	all := make(map[int]connector.MooncakeEntry, len(i.ranks))
	for n, e := range i.engines() {
		all[n] = connector.MooncakeEntry{EngineID: e.ID, WorkerAddr: map[int]map[int]string{0: {0: "tcp://" + i.ranks[n].side.Addr().String()}}}
	}
	_ = writeJSON(w, http.StatusOK, all) // it does not matter if the reader has gone
}
