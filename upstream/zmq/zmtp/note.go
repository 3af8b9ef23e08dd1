package zmtp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// limited lets one log line through per minute, because peers can cause any number of them.
type limited struct{ last atomic.Int64 } // Unix seconds

func (l *limited) due() bool {
	now, last := time.Now().Unix(), l.last.Load()
	return now-last >= 60 && l.last.CompareAndSwap(last, now)
}

// hungUp reports whether a connection ended because the other side or the network ended it.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ETIMEDOUT)
}

// orDiscard returns logger, or one that discards everything if logger is nil.
func orDiscard(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return logger
}

// wait returns after d, or earlier if ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
