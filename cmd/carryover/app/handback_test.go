package app

import (
	"log/slog"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/server/pins"
)

// Tickets are handed back only where that was measured: with NixlConnector, and nothing beside.
func TestOpenConnector_HandsBackWhereThatWasMeasured(t *testing.T) {
	for _, name := range config.Connectors() {
		cfg := config.Default()
		cfg.Connector.Name = name
		connector, err := (&Proxy{}).OpenConnector(cfg, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := connector.Traits().HandsBack, name == config.ConnectorNIXL; got != want {
			t.Errorf("%s: hands back %t, want %t", name, got, want)
		}
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
