package main

import (
	"log/slog"
	"testing"
	"time"

	"carryover/server"
)

func TestServerConfig_HandsBackWhereItCanBe(t *testing.T) {
	off := server.HandBackConfig{HandBack: server.HandBackOff}
	for args, want := range map[string]server.HandBackConfig{
		"":                                  {HandBack: server.HandBackIdle, HandBackAfter: 5 * time.Second, HandBackMemory: 16 << 20},
		"--hand-back now --release off":     {HandBack: server.HandBackNow, HandBackAfter: 5 * time.Second, HandBackMemory: 16 << 20},
		"--hand-back-after 1s":              {HandBack: server.HandBackIdle, HandBackAfter: time.Second, HandBackMemory: 16 << 20},
		"--hand-back-memory 3MiB":           {HandBack: server.HandBackIdle, HandBackAfter: 5 * time.Second, HandBackMemory: 3 << 20},
		"--hand-back off":                   off,
		"--proof history":                   off,
		"--connector multi":                 off,
		"--connector mooncake":              off,
		"--connector lmcache-storage":       off,
		"--connector multi --hand-back now": off,
	} {
		cfg, err := served(t, args)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if got := newServerConfig(cfg, slog.New(slog.DiscardHandler)).HandBackConfig; got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
	}
}

// A model with its own proof has ids to hand back although the others have none.
func TestServerConfig_OneModelWithIDsIsHandedBack(t *testing.T) {
	cfg := defaultConfig()
	cfg.Proof.Mode, cfg.Proof.Models = string(server.ProofHistory), map[string]string{"m": string(server.ProofAuto)}
	if off := cfg.handBackOff(); off != (handBackOff{}) {
		t.Errorf("%+v, want none", off)
	}
}

// A wait that no ticket survives matters with idle only, and the default follows a time that is too short for it.
func TestConfig_HandBackAfterIsBelowTheLifeOfTickets(t *testing.T) {
	for args, want := range map[string]string{
		"--hand-back-after 450s":                  `hand_back.after: "450s" (--hand-back-after): want less than store.ttl, 450s, for which a ticket lives at most; or hand_back.mode now or off`,
		"--ttl 5s":                                "",
		"--ttl 5s --hand-back-after 5s":           `hand_back.after: "5s" (--hand-back-after): want less than store.ttl, 5s, for which a ticket lives at most; or hand_back.mode now or off`,
		"--hand-back-after 449s":                  "",
		"--ttl 5s --hand-back off":                "",
		"--hand-back now --hand-back-after 1000s": "",
		"--hand-back-memory 1048575":              `hand_back.memory: "1048575" (--hand-back-memory): want at least 1MiB`,
	} {
		got := ""
		if _, err := served(t, args); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}
