package zmtp

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// The pauses between attempts to reach a publisher.
const (
	firstRedial = 200 * time.Millisecond
	mostRedial  = 3 * time.Second
)

// Subscriber takes the messages of one publisher that it connects to.
type Subscriber struct {
	Endpoint string // tcp://host:port
	Topic    string // how messages begin that are wanted, empty for all
	Limits   Limits
	// Handle and Up are called by one goroutine, the one of Run.
	Handle func(Message)
	// Up follows each subscription; nil for nothing. Of what the publisher sends before it has read the subscription
	// nothing comes, so the first messages may come later than Up and be none that follow what was heard before.
	Up     func()
	Logger *slog.Logger // nil discards
}

// Run subscribes until ctx ends, and returns the cause then. Whatever ends a connection, the publisher is dialled again, after
// 200 ms and, as long as it can't be reached, up to 3 s. The error of an endpoint that is none is returned at once.
func (s *Subscriber) Run(ctx context.Context) error {
	if _, err := dialable(s.Endpoint); err != nil {
		return err
	}
	log, pause := orDiscard(s.Logger), firstRedial
	for {
		err := with(ctx, s.Endpoint, Sub, s.Limits, func(p *peer) error {
			if err := p.subscribe(s.Topic); err != nil {
				return err
			}
			pause = firstRedial
			return s.receive(p)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var panicked *panicError
		if errors.As(err, &panicked) {
			log.Error("a zeromq message made its handler panic", "publisher", s.Endpoint, "reason", panicked.reason, "stack", string(panicked.stack))
		} else {
			log.Debug("a zeromq publisher is not connected", "publisher", s.Endpoint, "error", err)
		}
		wait(ctx, pause)
		pause = min(2*pause, mostRedial)
	}
}

// receive hands over messages until the connection ends.
func (s *Subscriber) receive(p *peer) error {
	if s.Up != nil {
		s.Up()
	}
	for {
		m, err := p.receive()
		if err != nil {
			return err
		}
		if !hasTopic(m, s.Topic) {
			continue
		}
		if err := handled(s.Handle, m); err != nil {
			return err
		}
	}
}
