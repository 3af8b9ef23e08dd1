package app

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

// A turn leaves some 100 KB of garbage, and a proxy without open streams holds a few MB; so the collector, which by itself
// starts when the heap has doubled, ran every hundred turns and took a third of the CPU time.
const (
	// mostHeapFloor is the size in bytes below which the heap is left to grow. With half of it, a turn of workload W1 took 5 % more CPU time
	// when the tickets of 6,000 conversations, some 50 MB, were alive; the process took 60 MB less.
	mostHeapFloor = 128 << 20
	// floorShare is the part of a memory limit, one in so many bytes, that the floor takes at most.
	floorShare = 8
)

// heapPacer makes Go collect garbage when the heap has doubled, as Go does by default, but not before the heap has reached a floor.
type heapPacer struct {
	floor   uint64 // bytes
	percent int    // as it was set last
	samples []metrics.Sample
}

// Pace sets the pace now and after each collection. If GOGC is set, the operator has chosen the pace, and it does nothing.
func (p *heapPacer) Pace() {
	if os.Getenv("GOGC") != "" {
		return
	}
	p.adjust()
	// The marker is unreachable at once, so that the collection that comes next finds it.
	marker := new([16]byte) // not tiny: those share a block with others
	runtime.AddCleanup(marker, func(p *heapPacer) { p.Pace() }, p)
}

// NewHeapPacer derives the floor from the memory that the process may use.
func NewHeapPacer() *heapPacer {
	return &heapPacer{
		floor: heapFloor(memoryLimit(debug.SetMemoryLimit(-1), readFile)),
		samples: []metrics.Sample{
			{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
		},
	}
}

// adjust sets the percentage that makes the next collection's goal the floor, or the double of what is live. A change stops the
// world for some microseconds, so that small ones are not made.
func (p *heapPacer) adjust() {
	metrics.Read(p.samples)
	live, stacks, globals := p.samples[0].Value.Uint64(), p.samples[1].Value.Uint64(), p.samples[2].Value.Uint64()
	percent := gcPercent(live, stacks+globals, p.floor)
	if percent*10 > p.percent*9 && percent*10 < p.percent*11 {
		return
	}
	p.percent = percent
	debug.SetGCPercent(percent)
}

// gcPercent returns the GOGC for which the heap's goal is floor, at least 100. The goal is live + (live + roots) * GOGC / 100 (Go's GC
// guide), and at least 4 MiB * GOGC / 100 (runtime/mgcpacer.go, heapMinimum).
func gcPercent(live, roots, floor uint64) int {
	if floor <= live {
		return 100
	}
	return int(max(100, min((floor-live)*100/max(1, live+roots), floor*100/leastHeap)))
}

// leastHeap is the heap's least goal with a GOGC of 100.
const leastHeap = 4 << 20

// heapFloor is the floor under a memory limit in bytes.
func heapFloor(limit uint64) uint64 { return min(mostHeapFloor, limit/floorShare) }

// memoryLimit returns the smaller of Go's own limit (GOMEMLIMIT) and the limit of the container, cgroup v2 or v1.
func memoryLimit(own int64, read func(name string) []byte) uint64 {
	limit := uint64(max(0, own))
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if n, err := strconv.ParseUint(string(bytes.TrimSpace(read(name))), 10, 64); err == nil { // "max", or no such file, is none
			limit = min(limit, n)
		}
	}
	return max(limit, 1)
}

// readFile returns what a file holds, nothing if it can't be read.
func readFile(name string) []byte {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return content
}
