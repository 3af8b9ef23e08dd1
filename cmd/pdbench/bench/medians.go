package bench

import (
	"slices"
	"time"

	"carryover/cmd/pdbench/load"
)

// figure names one number of a measurement, with its unit.
type figure string

const (
	cpuTurn    figure = "cpu_us_per_turn"
	cpuChunk   figure = "cpu_us_per_chunk"
	turnRate   figure = "turns_per_s"
	chunkRate  figure = "chunks_per_s"
	firstP50   figure = "first_byte_p50_us"
	firstP99   figure = "first_byte_p99_us"
	gapP99     figure = "gap_p99_ms"
	streamKB   figure = "kb_per_stream"
	peakMB     figure = "peak_mb"
	hitPercent figure = "hits_percent"
)

// figures are the numbers of a measurement. A figure without meaning for the workload is absent.
type figures map[figure]float64

// figuresOf computes the figures. CPU time counts per turn if chunks have no pauses, and per chunk if they have.
func figuresOf(w load.Workload, o load.Outcome) figures {
	f := figures{}
	seconds := o.Wall.Seconds()
	if seconds <= 0 {
		return f
	}
	paced := w.Gap > 0
	per := func(n int) float64 { return micros(o.CPU) / float64(n) }
	if o.Turns > 0 && !paced {
		f[turnRate] = float64(o.Turns) / seconds
		if w.Reuses() && o.HandOvers > 0 {
			f[hitPercent] = 100 * float64(o.Hits) / float64(o.HandOvers)
		}
		if o.CPU > 0 {
			f[cpuTurn] = per(o.Turns)
		}
	}
	if o.Chunks > 0 && paced && !w.Open {
		f[chunkRate] = float64(o.Chunks) / seconds
		f[gapP99] = float64(o.Gaps.P99()) / float64(time.Millisecond)
		if o.CPU > 0 {
			f[cpuChunk] = per(o.Chunks)
		}
	}
	if len(o.FirstByte) > 0 && !paced {
		f[firstP50], f[firstP99] = micros(o.FirstByte.P50()), micros(o.FirstByte.P99())
	}
	if o.Peak > 0 {
		f[peakMB] = float64(o.Peak) / (1 << 20)
	}
	if w.Open && o.Streams > 0 && o.Held > 0 {
		f[streamKB] = float64(o.Held-o.Base) / float64(o.Streams<<10)
	}
	return f
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func mediansOf(rounds []figures) figures {
	lists := map[figure][]float64{}
	for _, f := range rounds {
		for name, value := range f {
			lists[name] = append(lists[name], value)
		}
	}
	medians := figures{}
	for name, list := range lists {
		medians[name] = median(list)
	}
	return medians
}

// median needs at least one number. Of an even count it returns the mean of the two in the middle.
func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
