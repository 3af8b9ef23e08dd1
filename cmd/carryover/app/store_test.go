package app

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config/configtest"
	"carryover/convcache"
)

func TestRedisConnection_HoldsWhatOtherSectionsSay(t *testing.T) {
	cfg, err := configtest.LoadFiles(t, []string{"--config", "accepted-full.yaml"})
	must(t, err)
	conn, err := redisConnection(cfg, convcache.Secret{}, slog.New(slog.DiscardHandler))
	local := memoryBounds(cfg.Store)
	if err != nil || conn.Timeout != 2500*time.Microsecond || local.MaxEntries != maxTickets || local.MaxBytes != 3<<30 {
		t.Errorf("timeout %v, local bounds %+v (%v); want 2.5ms, %d tickets and 3 GiB", conn.Timeout, local, err, maxTickets)
	}
	cfg.Redis.PasswordFile = "gone since"
	if _, err := redisConnection(cfg, convcache.Secret{}, nil); err == nil || !strings.Contains(err.Error(), "redis.password_file: want a readable file") {
		t.Errorf("got %v, want the password file missed", err)
	}
}
