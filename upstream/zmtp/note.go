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

// limited lets a line through once a minute: peers can bring about as many as they like.
type limited struct{ last atomic.Int64 } // Unix seconds

func (l *limited) due() bool {
	now, last := time.Now().Unix(), l.last.Load()
	return now-last >= 60 && l.last.CompareAndSwap(last, now)
}

// hungUp says whether a connection ended because the other side or the network ended it.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ETIMEDOUT)
}

// orDiscard returns a logger that is none where there is none.
func orDiscard(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return logger
}

// wait returns after a time, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
