package app

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"

	"carryover/cmd/carryover/config"
)

// UntilSignal turns the first SIGINT or SIGTERM into the end of the context, which is a graceful shutdown. By then signals
// are not caught any more, so that a second one ends the process at once.
func UntilSignal(work func(ctx context.Context) int) int {
	signalled, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	ctx, cancel := context.WithCancel(context.Background())
	context.AfterFunc(signalled, func() {
		release()
		cancel()
	})
	return work(ctx)
}

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

// NewLogger returns the log, and the level that can be changed.
func NewLogger(cfg config.LogConfig, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(logLevel(cfg))
	if cfg.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: inMilliseconds})), level
	}
	return slog.New(forPeople{slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutEmpty})}), level
}

// forPeople writes no members that say nothing.
type forPeople struct{ *slog.TextHandler }

// OmitsEmpty implements record.EmptyOmitter.
func (forPeople) OmitsEmpty() bool { return true }

// withoutEmpty leaves out texts that are empty.
func withoutEmpty(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindString && a.Value.String() == "" {
		return slog.Attr{}
	}
	return a
}

// inMilliseconds shows a duration as a number whose name says its unit: JSON has no durations, and slog would write nanoseconds.
func inMilliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
	}
	return a
}

func logLevel(cfg config.LogConfig) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.Level)) // checked by Load
	return level
}
