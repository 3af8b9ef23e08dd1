package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/convcache"
	"carryover/convcache/redisstore"
)

// store examines Redis with the test that serve makes at its start, and with what the server tells of itself.
func (d *doctor) store(ctx context.Context, p *app.Proxy) {
	if p.Tickets.Shared == nil {
		return
	}
	r, limit := d.report, config.FormatDuration(d.cfg.Timeouts.Store)
	ctx, cancel := context.WithTimeout(ctx, app.StoreCheckTimeout)
	defer cancel()
	switch err := p.Tickets.Shared.Check(ctx); {
	case errors.Is(err, convcache.ErrRemoteForbids):
		r.found(whereRedis, codeRedisForbids, strings.TrimPrefix(err.Error(), convcache.ErrRemoteForbids.Error()+": "))
		return
	case err != nil:
		r.found(whereRedis, codeRedisDown, config.StoreName(d.cfg.Redis)+": "+err.Error(), "{limit}", limit)
		return
	}
	r.holds(whereRedis, codeRedisDown, "")
	r.holds(whereRedis, codeRedisForbids, "")
	seen, err := p.Tickets.Redis.Look(ctx)
	if err != nil {
		r.found(whereRedis, codeRedisDown, config.StoreName(d.cfg.Redis)+": "+err.Error(), "{limit}", limit)
		return
	}
	d.redis(seen)
	what := ""
	if conn := d.cfg.Redis.Connection(func(string, string, string) {}); config.Exposed(conn) { // Load has found no fault
		what = "redis.insecure, without TLS or without a password"
	}
	r.check(whereRedis, codeRedisOpen, what)
}

// redis judges what the server has told.
func (d *doctor) redis(seen redisstore.Sight) {
	r := d.report
	say := func(code string, bad bool, format string, values ...any) {
		what := ""
		if bad {
			what = fmt.Sprintf(format, values...)
		}
		r.check(whereRedis, code, what)
	}
	say(codeRedisClock, seen.Apart.Abs() > clockSlack, "its clock and ours differ by %s", seen.Apart.Abs().Round(time.Millisecond))
	say(codeRedisEviction, seen.MaxMemory > 0 && seen.Eviction != "volatile-ttl", "maxmemory-policy is %s", seen.Eviction)
	say(codeRedisMemory, seen.MaxMemory == 0, "maxmemory is 0")
	say(codeRedisDisk, seen.Appends, "appendonly is on")
}
