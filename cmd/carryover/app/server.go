package app

import (
	"log/slog"
	"syscall"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/server/pins"
	"carryover/server/request"
	"carryover/server/turn"
)

// Values that no operator has to choose.
const (
	ReuseMinTokens    = 64               // fewer are not worth a transfer from decode to prefill
	reuseMinShare     = 0.5              // of a ticket; a smaller share leaves the ticket to a turn that uses more
	ReuseTrialTimeout = 10 * time.Second // for prefill's first answer to a ticket; pins.MaxReuseTrial bounds it
	releaseBacklog    = 8                // per decode instance
	handBackMemory    = 16 << 20         // 4 bytes per token id

	clientHeaderTimeout = 10 * time.Second
	clientBodyTimeout   = time.Minute
	clientWriteTimeout  = 30 * time.Second // per write
)

// NewServerConfig returns the server's part of the configuration.
func NewServerConfig(cfg config.Config, logger *slog.Logger) server.Config {
	files := openFiles()
	connections := max(16, (files-reservedFiles)/2)
	streams := cfg.Limits.MaxStreams
	if streams == 0 {
		streams = max(16, (files-reservedFiles)/filesPerTurn)
	}
	storeTimeout := cfg.Timeouts.Store
	if cfg.Redis.URL == "" {
		storeTimeout = 0 // a store in this process never waits
	}
	return server.Config{
		RoutingConfig: newRouting(cfg),
		ReuseConfig: server.ReuseConfig{
			ReuseMinTokens: ReuseMinTokens, ReuseMinShare: reuseMinShare, ReuseTrialTimeout: ReuseTrialTimeout, TTL: cfg.Store.TTL,
		},
		ReleaseConfig: pins.ReleaseConfig{
			Release: cfg.Release.Mode == "on", ReleaseBacklog: releaseBacklog, PinnedShare: cfg.Release.PinnedShare,
		},
		HandBackConfig: NewHandBack(cfg),
		Config: request.Config{
			Sources: cfg.Conversation.Sources, ByContent: cfg.Conversation.ByContent == "on",
			TenantHeader: cfg.Conversation.TenantHeader, TenantSalt: cfg.Conversation.TenantSalt,
			ForwardAuthorization: cfg.Auth.ForwardAuthorization,
			MaxBodyBytes:         int64(cfg.Limits.MaxBodyBytes), ClientBodyTimeout: clientBodyTimeout,
		},
		LimitConfig: server.LimitConfig{
			MaxInflightBytes: int64(cfg.Limits.MaxInflightBytes), MaxStreams: streams, MaxConnections: connections, QueueConfig: cfg.Limits.QueueConfig,
		},
		LegConfig: turn.LegConfig{
			PrefillTimeout: cfg.Timeouts.Prefill, HandoverBudget: cfg.Timeouts.HandoverBudget,
			FirstByteTimeout: cfg.Timeouts.FirstByte, AnswerTimeout: cfg.Timeouts.Answer, IdleTimeout: cfg.Timeouts.Idle,
			FirstEvent: firstEvent, Heartbeat: cfg.Timeouts.Heartbeat, ClientWriteTimeout: clientWriteTimeout,
		},
		TimeConfig: server.TimeConfig{
			StoreTimeout: storeTimeout, ShutdownGrace: cfg.Timeouts.ShutdownGrace, ClientHeaderTimeout: clientHeaderTimeout,
		},
		Version: command.Version, Logger: logger, LogClients: request.ClientsMode(cfg.Log.Clients),
	}
}

// firstEvent is how long decode's first event waits for the second. vLLM reports a failed load of KV right after the first.
const firstEvent = 250 * time.Millisecond

// NewHandBack returns when tickets are handed back. With HandBackOff no ids are kept for it, and a ticket is only kept or released.
func NewHandBack(cfg config.Config) pins.HandBackConfig {
	back := pins.HandBackConfig{HandBack: pins.HandBackOff, HandBackAuto: cfg.HandBack.After == config.WaitAuto}
	if cfg.HandsBack() {
		back.HandBack, back.HandBackAfter, back.HandBackMemory = pins.HandBackMode(cfg.HandBack.Mode), cfg.HandBackAfter(), handBackMemory
	}
	return back
}

// A turn holds one client connection and one upstream connection. A third file per turn is for idle connections in the pools, and 256 are
// reserved for listeners, logs and probes.
const (
	reservedFiles = 256
	filesPerTurn  = 3
)

// openFiles returns the limit of open files; the Go runtime has raised it to the hard limit.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}

func newRouting(cfg config.Config) turn.RoutingConfig {
	return turn.RoutingConfig{DisaggThreshold: cfg.Routing.DisaggThreshold, PrefillFailure: turn.PrefillFailure(cfg.Routing.PrefillFailure)}
}
