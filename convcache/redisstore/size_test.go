package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"carryover/convcache/redistest"
)

// longTicket returns a ticket over so many tokens in blocks of 16, whose params name the given blocks.
func longTicket(tb testing.TB, tokens int, blocks []int) Ticket {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	chain := mustChain(tb, sharedSecret(tb).ChainKey(), randomIDs(rng, tokens, 150_000), 16)
	tk := fullTicket(1)
	tk.Chain, tk.Tokens = chain, tokens
	text := make([]string, len(blocks))
	for i, id := range blocks {
		text[i] = strconv.Itoa(id)
	}
	tk.Params = fmt.Appendf(nil, `{"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[%s]], `+
		`"remote_engine_id": "1f6d3c1e-6a0e-4b5e-9f43-0f4b6a3c2d11", "remote_host": "10.1.2.3", "remote_port": 5600, "tp_size": 1}`, strings.Join(text, ", "))
	return tk
}

// scatteredBlocks are block ids as a busy decode instance gives them: n of the first 100,000 in any order.
func scatteredBlocks(n int) []int {
	return rand.New(rand.NewPCG(3, 4)).Perm(100_000)[:n] //nolint:gosec // reproducible
}

// adjacentBlocks are block ids as an idle one gives them.
func adjacentBlocks(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 5000 + i
	}
	return ids
}

func TestRedis_SizeOfALongTicket(t *testing.T) {
	const tokens, blocks, most = 128 << 10, 8 << 10, 130_000
	s := redistest.Start(t)
	for name, ids := range map[string][]int{"scattered": scatteredBlocks(blocks), "adjacent": adjacentBlocks(blocks)} {
		t.Run(name, func(t *testing.T) {
			r := openOn(t, s, Config{Prefix: freshPrefix()})
			tk := longTicket(t, tokens, ids)
			wantPut(t, r, key(1), tk, Stored)
			size := 0
			for field, value := range readHash(t, r, key(1)) {
				size += len(field) + len(value)
			}
			if size >= most {
				t.Errorf("values: got %d bytes, want less than %d", size, most)
			}
			t.Logf("params %d bytes; in Redis %d, MEMORY USAGE %s", len(tk.Params), size, s.CLI("MEMORY", "USAGE", r.KeyName(key(1))))

			if got := wantTake(t, r, key(1), tk.ID, Taken); !sameAs(got, tk) {
				t.Error("take: got another ticket than was put")
			}
		})
	}
}

// A look-up finds a ticket without its params, so it does not read them.
func TestRedis_PeekReadsNoParams(t *testing.T) {
	s, r := startRedis(t)
	tk := fullTicket(1)
	wantPut(t, r, key(1), tk, Stored)
	said := monitor(t, s, func() { wantLook(t, r, key(1), Found) })
	if got := strings.Count(said, `"hmget"`); got != 2 || strings.Contains(said, `0p"`) {
		t.Errorf("a look-up said %q, want hmget of the conversation and of the epoch, of no params", said)
	}
	s.CLI("HDEL", r.KeyName(key(1)), "0p")
	wantLook(t, r, key(1), Found)
	wantTake(t, r, key(1), tk.ID, Consumed)
}
