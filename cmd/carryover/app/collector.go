package app

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapFloor is the size in bytes below which the heap is left to grow. A turn leaves some 100 KB of garbage, and a proxy without open streams
// holds a few MB, so that the collector, which by itself starts when the heap has doubled, ran every hundred turns and took a third of the CPU
// time of workload W1.
const heapFloor = 128 << 20

// aboveFloor is the GOGC of a larger heap, which belongs to open streams. With Go's 100, 5,000 streams with prompts of 64 KB take 100 KB each while
// they open, and with 55 they take 74.
const aboveFloor = 55

// PaceCollector makes Go collect garbage when the heap has grown by aboveFloor per cent, but not below heapFloor. It does so again after each
// collection. GOGC replaces it, and GOMEMLIMIT holds all the same.
func PaceCollector() {
	if os.Getenv("GOGC") != "" {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	metrics.Read(samples)
	debug.SetGCPercent(gcPercent(samples[0].Value.Uint64(), samples[1].Value.Uint64()))
	// The marker is unreachable at once, so that the next collection finds it.
	runtime.AddCleanup(new([16]byte), func(struct{}) { PaceCollector() }, struct{}{})
}

// gcPercent returns the GOGC for which the heap grows to heapFloor, at least aboveFloor. The goal is live + (live + stacks) * GOGC / 100 (Go's GC
// guide), and at least 4 MiB * GOGC / 100 (runtime/mgcpacer.go, heapMinimum).
func gcPercent(live, stacks uint64) int {
	if live >= heapFloor {
		return aboveFloor
	}
	return int(max(aboveFloor, min((heapFloor-live)*100/max(1, live+stacks), heapFloor*100/(4<<20))))
}
