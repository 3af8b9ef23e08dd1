package upstream

import (
	"context"
	"io"
	"net"
	"time"

	"carryover/upstream/http1"
)

// transport carries requests to engines. It repeats no request, follows no redirect, uses no proxy from the
// environment, and asks for no content coding. Names are resolved for each connection.
type transport interface {
	// do sends a request and returns when the header of its answer has arrived. Nothing was sent unless q.Connected
	// was called.
	do(ctx context.Context, q *http1.Request) (answer, error)
	// closeIdle closes idle connections, at least those to base.
	closeIdle(base string)
	// check looks, without waiting, whether the peer has ended an idle connection to base, and reports it if so. It returns one that is open,
	// nil if it knows of none.
	check(base string) net.Conn
	// closeAll closes all idle connections.
	closeAll()
}

// answer is the answer that a transport returns. The caller closes its body.
type answer struct {
	status int
	// The header fields that are used: content type and Retry-After, the first if there are several, and all content
	// codings.
	contentType, contentEncoding, retryAfter string

	body answerBody
}

// answerBody is read to its end, or until the context of its request ends.
type answerBody interface {
	io.ReadCloser
	// Detach makes the body survive the end of the context; if the context has ended already, it returns the cause. It
	// is called before anything else.
	Detach() error
}

// Limits of connections.
const (
	// idleFor is how long an idle connection is kept. vLLM's server (uvicorn) closes idle connections after 5 s, and a
	// request that is written at that moment is lost, so ours close first.
	idleFor = 4 * time.Second
	// idlePerHost is enough for every turn in flight: with net/http's default of two nearly every leg would have to
	// connect.
	idlePerHost = 1024
)

// dialler connects to host:port.
type dialler func(ctx context.Context, network, address string) (net.Conn, error)

// dialing returns a dialler of watched connections with a time limit. They are among the open ones until they are closed.
func dialing(limit time.Duration, open *connections) dialler {
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
		return watch(open.add(address, c)), nil
	}
}
