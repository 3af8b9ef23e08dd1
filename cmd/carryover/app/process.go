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

// UntilSignal ends the context at the first SIGINT or SIGTERM, for a graceful shutdown. A second signal ends the process at once.
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

// heapFloor is the size in bytes up to which the heap grows without a collection. A turn leaves some 100 KB of garbage, and an idle proxy
// holds a few MB. By default Go would collect every hundred turns: a third of the CPU time of workload W1.
const heapFloor = 128 << 20

// aboveFloor is the GOGC above heapFloor, where open streams hold the heap. While 5,000 streams with prompts of 64 KB open, each takes
// 100 KB with Go's 100, and 74 KB with 55.
const aboveFloor = 55

// PaceCollector sets GOGC for heapFloor and aboveFloor, and again after each collection. The variable GOGC replaces it; GOMEMLIMIT still holds.
func PaceCollector() {
	if os.Getenv("GOGC") != "" {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	metrics.Read(samples)
	debug.SetGCPercent(gcPercent(samples[0].Value.Uint64(), samples[1].Value.Uint64()))
	// The marker is unreachable at once, so the next collection runs the clean-up.
	runtime.AddCleanup(new([16]byte), func(struct{}) { PaceCollector() }, struct{}{})
}

// gcPercent returns the GOGC with which the heap grows to heapFloor, at least aboveFloor. The goal is live + (live + stacks) * GOGC / 100
// (Go's GC guide), and at least 4 MiB * GOGC / 100 (runtime/mgcpacer.go, heapMinimum).
func gcPercent(live, stacks uint64) int {
	if live >= heapFloor {
		return aboveFloor
	}
	return int(max(aboveFloor, min((heapFloor-live)*100/max(1, live+stacks), heapFloor*100/(4<<20))))
}

// NewLogger returns the log and its level.
func NewLogger(cfg config.LogConfig, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(logLevel(cfg))
	if cfg.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: inMilliseconds})), level
	}
	return slog.New(forPeople{slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutEmpty})}), level
}

type forPeople struct{ *slog.TextHandler }

func (forPeople) OmitsEmpty() {}

func withoutEmpty(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindString && a.Value.String() == "" {
		return slog.Attr{}
	}
	return a
}

// inMilliseconds puts the unit into the key: JSON has no durations, and slog would write nanoseconds.
func inMilliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
	}
	return a
}

func logLevel(cfg config.LogConfig) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.Level)) // Load has checked it
	return level
}
