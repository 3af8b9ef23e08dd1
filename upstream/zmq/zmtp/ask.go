package zmtp

import (
	"context"
	"errors"

	"github.com/go-zeromq/zmq4"
)

// errNoDelimiter is the error for an answer whose first frame is not empty.
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
			frames = frames[1:]
			if more, err := answer(frames); err != nil || !more {
				return err
			}
		}
	})
}
