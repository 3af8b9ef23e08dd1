package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal turns the first SIGINT or SIGTERM into the end of the context, which is a graceful shutdown. By then signals
// are not caught any more, so that a second one ends the process at once.
func UntilSignal(work func(ctx context.Context) int) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 1) // one: Notify does not wait for the goroutine below to look
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the context at the latest
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals)
		cancel()
	}()
	return work(ctx)
}
