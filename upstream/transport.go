package upstream

import (
	"context"
	"io"
	"net"
	"time"

	"carryover/upstream/http1"
)

// transport carries requests to engines. It repeats none, follows no redirect and no proxy from the environment, and asks
// for no coding. Names are resolved for each connection.
type transport interface {
	// do sends a request and returns when the header of its answer has come. Unless Connected was called, nothing was sent.
	do(ctx context.Context, q *http1.Request) (answer, error)
	// closeIdle closes connections without a request: those to where base points, at least.
	closeIdle(base string)
	// check looks, without a wait, whether the peer has ended a connection that is kept to where base points, and tells of it.
	check(base string)
	// closeAll closes all connections without a request.
	closeAll()
}

// answer is what a transport brings. The caller closes its body.
type answer struct {
	status int
	// What is read of the header: content type and Retry-After, of which the first counts, and all content codings.
	contentType, contentEncoding, retryAfter string

	body answerBody
}

// answerBody is read to its end, or until the context of its request ends.
type answerBody interface {
	io.ReadCloser
	// Detach has the end of the context end nothing any more; the error is its cause if it has ended before. It is called
	// before anything else.
	Detach() error
}

// Bounds of connections.
const (
	// idleFor is how long an unused connection is kept. vLLM's server (uvicorn) closes idle connections after 5 s, and a
	// request written into that moment is lost, so ours go first.
	idleFor = 4 * time.Second
	// idlePerHost is enough for every turn in flight: with net/http's default of two nearly every leg would have to
	// connect.
	idlePerHost = 1024
)

// dialing returns what makes watched connections, within a limit.
func dialing(limit time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{
		Timeout:         limit,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3},
		Control:         boundUnacked,
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return watch(c), nil
	}
}
