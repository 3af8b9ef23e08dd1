package routing_test

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/routing"
)

func TestLoad_WeighsWhatKeepsAnEngineBusy(t *testing.T) {
	at := func(c upstream.Candidate, weight int) float64 {
		c.Instance = &upstream.Instance{Weight: weight}
		return routing.Load(&c)
	}
	for _, row := range []struct {
		name   string
		c      upstream.Candidate
		weight int
		want   float64
	}{
		{"nothing", upstream.Candidate{}, 0, 0},
		{"ours and those of others", upstream.Candidate{InFlight: 2, Others: 3}, 1, 5},
		{"those that wait count twice", upstream.Candidate{InFlight: 2, Waiting: 1}, 1, 3},
		{"by weight", upstream.Candidate{InFlight: 6}, 3, 2},
		{"a cache that is half full", upstream.Candidate{InFlight: 1, KVUsage: 0.5}, 1, 1},
		{"a full cache", upstream.Candidate{InFlight: 1, KVUsage: 1}, 1, 2},
		{"the delay, not the requests", upstream.Candidate{InFlight: 9, Delay: 1e9}, 1, 1e9},
		{"the delay by weight", upstream.Candidate{Delay: 1e9}, 2, 5e8},
		{"the delay with a full cache", upstream.Candidate{Delay: 1e9, KVUsage: 1}, 1, 2e9},
	} {
		if got := at(row.c, row.weight); got < row.want*0.999 || got > row.want*1.001 {
			t.Errorf("%s: got %v, want %v", row.name, got, row.want)
		}
	}
	if at(upstream.Candidate{KVUsage: 0.95}, 1) <= at(upstream.Candidate{KVUsage: 0.5}, 1) {
		t.Error("of two engines without requests the one with a nearly full cache is not the busier one")
	}
}
