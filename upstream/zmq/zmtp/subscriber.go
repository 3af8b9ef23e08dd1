package zmtp

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	firstRedial = 200 * time.Millisecond
	mostRedial  = 3 * time.Second
)

// Subscriber connects to one publisher and receives its messages.
type Subscriber struct {
	Endpoint string // tcp://host:port
	Limits   Limits
	// Handle gets each message, whatever its topic, valid during the call. The goroutine of Run calls Handle and Up.
	Handle func(frames [][]byte)
	// Up is called after each subscription. Messages that the publisher sends before it has read the subscription are lost, so messages
	// may be missing between Up and the first one.
	Up     func()
	Logger *slog.Logger
}

// Run subscribes until ctx ends, and returns the cause of ctx. Whatever ends a connection, Run dials the publisher again: after 200 ms,
// and after growing pauses of up to 3 s as long as it can't be reached. A malformed Endpoint is an error at once.
func (s *Subscriber) Run(ctx context.Context) error {
	if _, err := ParseEndpoint(s.Endpoint); err != nil {
		return err
	}
	log, pause := orDiscard(s.Logger), firstRedial
	for {
		err := with(ctx, s.Endpoint, zmq4.Sub, s.Limits, func(p *peer) error {
			if err := p.send([]byte{1}); err != nil { // all topics (ZMTP 3.0, "Publish-Subscribe")
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

func (s *Subscriber) receive(p *peer) error {
	s.Up()
	for {
		frames, err := p.receive()
		if err != nil {
			return err
		}
		if err := handled(s.Handle, frames); err != nil {
			return err
		}
	}
}

var errNoDelimiter = errors.New("zeromq answer without an empty first frame")

// Ask sends a question to a ROUTER socket as a REQ socket does, and passes each message that comes back to answer, until answer returns
// more == false. One question may have several answers. Like REQ, it puts an empty frame before the question and takes it off the answers.
// It returns the error of answer, the error of the connection, or the cause of ctx if ctx ends before.
func Ask(ctx context.Context, endpoint string, limits Limits, question [][]byte, answer func(frames [][]byte) (more bool, err error)) error {
	return with(ctx, endpoint, zmq4.Dealer, limits, func(p *peer) error {
		if err := p.send(append([][]byte{{}}, question...)...); err != nil {
			return err
		}
		for {
			frames, err := p.receive()
			if err != nil {
				return err
			}
			if len(frames) == 0 || len(frames[0]) > 0 {
				return errNoDelimiter
			}
			if more, err := answer(frames[1:]); err != nil || !more {
				return err
			}
		}
	})
}
