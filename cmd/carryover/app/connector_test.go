package app

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/server/pins"
	"carryover/upstream/connector/lmcache"
	"carryover/upstream/connector/mooncake"
	"carryover/upstream/connector/orchestrated"
)

// What the settings say for instances that say nothing of themselves is the connector's to know.
func TestOpenConnector_KnowsTheSettings(t *testing.T) {
	cfg := config.Default()
	cfg.Mooncake.BootstrapPort, cfg.Connector.OrchestratedForm = 8999, config.OrchestratedResponse
	cfg.LMCache.Notifications, cfg.LMCache.MaxPromptTokens, cfg.LMCache.ChunkTokens = 2, 4096, 64
	cfg.LMCache.DecoderRegistry = `{"http://d:8200": {"receiver_host": "r", "receiver_init_port": [1], "receiver_alloc_port": [2]}}`
	open := func(name string) any {
		t.Helper()
		cfg.Connector.Name = name
		c, err := (&Proxy{}).OpenConnector(cfg, nil, slog.New(slog.DiscardHandler))
		must(t, err)
		return c
	}
	if got, ok := open(config.ConnectorMooncake).(*mooncake.Connector); !ok || got.BootstrapPort != 8999 || got.Fetch == nil {
		t.Errorf("got %+v, want port 8999", got)
	}
	if got, want := open(config.ConnectorOrchestrated), (orchestrated.Connector{Response: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got := *open(config.ConnectorLMCache).(*lmcache.Connector)
	if got.Expect == nil || got.NewID == nil {
		t.Error("the connector has no ids, or can't wait")
	}
	got.Expect, got.NewID = nil, nil
	want := lmcache.Connector{
		Receivers:     map[string]lmcache.Receiver{"d:8200": {Host: "r", InitPorts: []int{1}, AllocPorts: []int{2}}},
		Notifications: 2, MaxPromptTokens: 4096, ChunkTokens: 64,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestServerConfig_HandsBackWhereItCanBe(t *testing.T) {
	off := pins.HandBackConfig{HandBack: pins.HandBackOff, HandBackAuto: true}
	for args, want := range map[string]pins.HandBackConfig{
		"":                                     {HandBack: pins.HandBackIdle, HandBackAfter: 5 * time.Second, HandBackMemory: 16 << 20, HandBackAuto: true},
		"--hand-back now --release off":        {HandBack: pins.HandBackNow, HandBackAfter: 5 * time.Second, HandBackMemory: 16 << 20, HandBackAuto: true},
		"--hand-back-after 1s":                 {HandBack: pins.HandBackIdle, HandBackAfter: time.Second, HandBackMemory: 16 << 20},
		"--hand-back off":                      off,
		"--hand-back off --hand-back-after 1s": {HandBack: pins.HandBackOff},
		"--hand-back-after auto":               {HandBack: pins.HandBackIdle, HandBackAfter: 5 * time.Second, HandBackMemory: 16 << 20, HandBackAuto: true},
		"--connector multi":                    off,
		"--connector mooncake":                 off,
		"--connector lmcache-storage":          off,
		"--connector multi --hand-back now":    off,
	} {
		cfg, err := configtest.Load(t, args)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if got := NewServerConfig(cfg, slog.New(slog.DiscardHandler)).HandBackConfig; got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
	}
}
