package redisstore_test

import (
	"carryover/logtest"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

// Tickets of these sizes are sent. A time-out says something of the server where they are smaller than sizeable.
const (
	belowSizeable = 60 << 10
	aboveSizeable = 100 << 10
	aboveMaxValue = 300 << 10
)

// stuck grants so many puts of a size some time, which all of it they need.
func (r *replica) stuck(puts, size int) {
	r.t.Helper()
	for n := range puts {
		timed(r.t, granted, func(ctx context.Context) {
			if _, got := r.Put(ctx, key(n), ticket(n, size), redisTTL); got != Unavailable {
				r.t.Errorf("a put that gets stuck: got %v, want %v", got, Unavailable)
			}
		})
	}
}

// narrowRedis returns a store whose way to the server stops what is larger than so many bytes, and one whose way is free.
func narrowRedis(t *testing.T, bytes int) (narrow, free *replica) {
	t.Helper()
	s := redistest.Start(t)
	f := redistest.Forward(t, s.Addr())
	narrow, free = openAt(t, f), openAt(t, s)
	narrow.check()
	free.check()
	f.Narrow(bytes)
	return narrow, free
}

// wantShared checks that small tickets get from one store to the other.
func wantShared(t *testing.T, r, other *replica) {
	t.Helper()
	if !r.Shares() {
		t.Fatal("nothing is sent any more")
	}
	small := ticket(99, 10)
	r.put(key(99), small)
	r.look(key(99))
	other.take(key(99), small)
}

func TestRedis_LargePutsThatTimeOutDoNotCount(t *testing.T) {
	r, other := narrowRedis(t, 32<<10)
	r.stuck(8, aboveSizeable)
	wantShared(t, r, other)
	r.stuck(5, belowSizeable)
	if r.Shares() {
		t.Error("five puts failed whose size does not explain it, and more are sent")
	}
}

func TestRedis_LargerTicketsStayHome(t *testing.T) {
	s := redistest.Start(t)
	r, other, small, large := openAt(t, s), openAt(t, s), ticket(1, 10), ticket(9, aboveMaxValue)
	r.check()
	r.put(k1, small)
	quiet(t, s, func() { r.put(k1, large) })
	r.shows(k1, large, small)
	other.shows(k1, small)
	r.put(k2, ticket(8, aboveMaxValue))
	r.keys([]Key{k1, k2}, Found, k1, k1, k2) // though what is in this process is found first
	other.take(k1, large, Consumed)
	r.take(k1, small)
	r.take(k1, large)
	r.take(k1, large, Consumed)
}

func TestRedis_MaxValueBoundsWhatIsShared(t *testing.T) {
	s, c := redistest.Start(t), &clock{}
	var log logtest.Log
	const overhead, frame = 640, 300 // of a ticket in memory; of a value: a branch without blocks, names, authentication
	r := openRedis(t, Config{Addresses: []string{s.Addr()}, MaxValue: 1 << 20, Now: c.now, Logger: log.Logger()}, 1<<20+overhead)
	other, fits := openAt(t, s), ticket(1, 1<<20-frame)
	r.put(k1, fits)
	if got := other.take(k1, fits); len(got.Params) != len(fits.Params) {
		t.Errorf("take: got %d bytes of params, want %d", len(got.Params), len(fits.Params))
	}
	for minute := range 3 {
		if got := log.Count("too large for redis"); got != minute {
			t.Errorf("logged %d times after %d minutes, want once a minute", got, minute)
		}
		for n := range 3 {
			r.put(key(10+n), ticket(n, 1<<20))
			other.look(key(10+n), Empty)
		}
		c.advance(redisTTL)
	}
	if displaced := r.put(k1, ticket(1, 1<<20+1), convcache.Refused); displaced != nil {
		t.Errorf("put of what is too large for this process too: got %d displaced, want none", len(displaced))
	}
	r.look(k1, Empty)
}

// longTicket returns a ticket over so many tokens in blocks of 16, whose params name the given blocks.
func longTicket(blocks []int) Ticket {
	const tokens = 128 << 10
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	tk := fullTicket(1)
	tk.Chain, tk.Tokens = Chain{BlockSize: 16, Tokens: tokens, Whole: 1}, tokens
	for range tokens / 16 {
		tk.Chain.Blocks = append(tk.Chain.Blocks, rng.Uint64())
	}
	tk.Params = fmt.Appendf(nil, `{"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[%s]], `+
		`"remote_engine_id": "1f6d3c1e-6a0e-4b5e-9f43-0f4b6a3c2d11", "remote_host": "10.1.2.3", "remote_port": 5600, "tp_size": 1}`,
		strings.Trim(strings.ReplaceAll(fmt.Sprint(blocks), " ", ", "), "[]"))
	return tk
}

// blocksFrom are the ids of 8192 blocks, as a busy decode instance gives them, in any order, and as an idle one does.
func blocksFrom(busy bool) []int {
	ids := rand.New(rand.NewPCG(3, 4)).Perm(100_000)[:8<<10] //nolint:gosec // reproducible
	for i := range ids {
		if !busy {
			ids[i] = 5000 + i
		}
	}
	return ids
}

func TestRedis_SizeOfALongTicket(t *testing.T) {
	s := redistest.Start(t)
	for name, tc := range map[string]struct {
		tk   Ticket
		most int
	}{
		"scattered": {longTicket(blocksFrom(true)), 130_000},
		"adjacent":  {longTicket(blocksFrom(false)), 130_000},
		"note":      {noteOf(longTicket(nil)), 67_000},
	} {
		r := openAt(t, s, Config{Prefix: freshPrefix()})
		r.put(k1, tc.tk)
		size := 0
		for field, value := range r.hash(k1) {
			size += len(field) + len(value)
		}
		if size >= tc.most {
			t.Errorf("%s: got %d bytes, want less than %d", name, size, tc.most)
		}
		t.Logf("%s: params %d bytes; in Redis %d, MEMORY USAGE %s", name, len(tc.tk.Params), size, s.CLI("MEMORY", "USAGE", r.KeyName(k1)))
		if got := r.take(k1, tc.tk); !sameAs(got, tc.tk) {
			t.Errorf("%s: take: got another ticket than was put", name)
		}
	}
}

// A look-up finds a ticket without its params, so it does not read them.
func TestRedis_PeekReadsNoParams(t *testing.T) {
	s := redistest.Start(t)
	r, a := openAt(t, s), ticket(1, 10)
	r.put(k1, a)
	said := monitor(t, s, func() { r.shows(k1, a) })
	if got := strings.Count(said, `"hmget"`); got != 2 || strings.Contains(said, `0p"`) {
		t.Errorf("a look-up said %q, want hmget of the conversation and of the epoch, of no params", said)
	}
	s.CLI("HDEL", r.KeyName(k1), "0p")
	r.shows(k1, a)
	r.take(k1, a, Consumed)
}
