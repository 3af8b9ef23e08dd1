package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

// median returns the middle one, and 0 of none.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// reportMedian reports the median in microseconds.
func reportMedian(b *testing.B, all []time.Duration, unit string) {
	b.Helper()
	b.ReportMetric(float64(median(all))/float64(time.Microsecond), unit)
}

// BenchmarkRedis_Turn reports the medians of what a turn asks of the store, and of a bare GET of 100 bytes from the
// same server between two turns.
func BenchmarkRedis_Turn(b *testing.B) {
	s := redistest.Start(b)
	bare := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	b.Cleanup(func() { _ = bare.Close() })
	if err := bare.Set(b.Context(), "bare", make([]byte, 100), 0).Err(); err != nil {
		b.Fatalf("set: %v", err)
	}
	for _, size := range []struct {
		name   string
		tokens int
	}{{"4k", 4 << 10}, {"128k", 128 << 10}} {
		b.Run(size.name, func(b *testing.B) {
			r := openRedis(b, redisstore.Config{Addresses: []string{s.Addr()}, Now: time.Now, Prefix: freshPrefix()})
			mustCheck(b, r)
			tk := longTicket(b, size.tokens, scatteredBlocks(size.tokens/16))
			tk.FreshAsOf = time.Now()
			wantPut(b, r, key(1), tk, convcache.Stored)
			b.ReportAllocs()
			var peeks, takes, puts, turns, gets []time.Duration
			for b.Loop() {
				began := time.Now()
				branches, _ := r.Peek(b.Context(), []convcache.Key{key(1)})
				peeked := time.Now()
				_, outcome := r.Take(b.Context(), key(1), branches[0].ID)
				taken := time.Now()
				_, stored := r.Put(b.Context(), key(1), tk, time.Hour)
				put := time.Now()
				err := bare.Get(b.Context(), "bare").Err()
				got := time.Now()
				if outcome != convcache.Taken || stored != convcache.Stored || err != nil {
					b.Fatalf("take: %v, put: %v, get: %v", outcome, stored, err)
				}
				peeks, takes, puts = append(peeks, peeked.Sub(began)), append(takes, taken.Sub(peeked)), append(puts, put.Sub(taken))
				turns, gets = append(turns, put.Sub(began)), append(gets, got.Sub(put))
			}
			reportMedian(b, peeks, "peek-µs")
			reportMedian(b, takes, "take-µs")
			reportMedian(b, puts, "put-µs")
			reportMedian(b, turns, "turn-µs")
			reportMedian(b, gets, "get-µs")
			b.ReportMetric(float64(median(turns))/float64(median(gets)), "turn/get")
		})
	}
}

// BenchmarkRedis_Sizes reports the medians of what tickets of long conversations cost, and of a look-up at four.
func BenchmarkRedis_Sizes(b *testing.B) {
	s := redistest.Start(b)
	for _, thousands := range []int{6, 64, 128, 256, 1000} {
		b.Run(fmt.Sprintf("%dk", thousands), func(b *testing.B) {
			r := openRedis(b, redisstore.Config{Addresses: []string{s.Addr()}, Now: time.Now, Prefix: freshPrefix(), MaxValue: 1 << 20})
			mustCheck(b, r)
			tokens := thousands << 10
			tk := longTicket(b, tokens, scatteredBlocks(tokens/16))
			tk.FreshAsOf = time.Now()
			for n := range 4 {
				wantPut(b, r, key(2), apart(tk, n), convcache.Stored)
			}
			var puts, peeks, fours, takes []time.Duration
			for b.Loop() {
				began := time.Now()
				_, stored := r.Put(b.Context(), key(1), tk, time.Hour)
				put := time.Now()
				r.Peek(b.Context(), []convcache.Key{key(1)})
				peeked := time.Now()
				four, _ := r.Peek(b.Context(), []convcache.Key{key(2)})
				all := time.Now()
				_, outcome := r.Take(b.Context(), key(1), tk.ID)
				taken := time.Now()
				if stored != convcache.Stored || len(four) != 4 || outcome != convcache.Taken {
					b.Fatalf("put: %v, peek: %d, take: %v", stored, len(four), outcome)
				}
				puts, peeks = append(puts, put.Sub(began)), append(peeks, peeked.Sub(put))
				fours, takes = append(fours, all.Sub(peeked)), append(takes, taken.Sub(all))
			}
			size := 0
			wantPut(b, r, key(1), tk, convcache.Stored)
			for _, value := range readHash(b, r, key(1)) {
				size += len(value)
			}
			b.ReportMetric(float64(size)/1024, "KiB")
			reportMedian(b, puts, "put-µs")
			reportMedian(b, peeks, "peek-µs")
			reportMedian(b, fours, "peek-at-four-µs")
			reportMedian(b, takes, "take-µs")
		})
	}
}

// apart returns the n-th of four tickets as large as one that share nothing.
func apart(tk convcache.Ticket, n int) convcache.Ticket {
	tk.ID = convcache.NewTicketID()
	tk.Chain.Blocks = slices.Clone(tk.Chain.Blocks)
	for i := range tk.Chain.Blocks {
		tk.Chain.Blocks[i] += uint64(n + 1)
	}
	tk.Chain.Whole += uint64(n + 1)
	return tk
}
