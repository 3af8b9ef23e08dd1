package zmtp

import (
	"carryover/logtest"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// sendsAs has libzmq send one message.
func sendsAs(tb testing.TB, endpoint, text string) {
	tb.Helper()
	zmqtest.Start(tb, `
import sys, zmq
socket = zmq.Context().socket(zmq.PUSH)
socket.connect(sys.argv[1])
socket.send(sys.argv[2].encode())
input()
`, endpoint, text)
}

// publish binds a PUB like vLLM's, and publishes 3 frames every 5 ms, with the name of this run as payload.
const publish = `
import sys, zmq, time
socket = zmq.Context().socket(zmq.PUB)
if sys.argv[3] == "heartbeats":
    socket.setsockopt(zmq.HEARTBEAT_IVL, 50)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 400)
while True:
    try:
        socket.bind(sys.argv[1])
        break
    except zmq.ZMQError:
        time.sleep(0.05)
print("bound")
i = 0
while True:
    socket.send_multipart([b"other", b"", b""])
    socket.send_multipart([b"kv-events", i.to_bytes(8, "big"), sys.argv[2].encode()])
    i += 1
    time.sleep(0.005)
`

// freeEndpoint returns an endpoint that nobody listens on.
func freeEndpoint(tb testing.TB) string {
	tb.Helper()
	l, endpoint := listen(tb)
	l.Close()
	return endpoint
}

// subscription is a running subscriber.
type subscription struct {
	*inbox
	ups atomic.Int64
}

func subscribe(tb testing.TB, endpoint string) *subscription {
	tb.Helper()
	s := &subscription{inbox: newInbox()}
	run(tb, (&Subscriber{
		Endpoint: endpoint,
		Handle: func(frames [][]byte) {
			if strings.HasPrefix(string(frames[0]), "kv") {
				s.handle(frames)
			}
		},
		Up: func() { s.ups.Add(1) },
	}).Run)
	return s
}

// has waits for messages of one run of a publisher.
func (s *subscription) has(tb testing.TB, run string) {
	tb.Helper()
	all := s.await(tb, "messages of "+run, func(all []string) bool { return len(all) > 0 && strings.HasSuffix(all[len(all)-1], run) })
	for _, message := range all {
		if !strings.HasPrefix(message, "kv-events|") || strings.Count(message, "|") < 2 {
			tb.Errorf("got %q, want three frames of the topic", message)
		}
	}
}

// A publisher that is not there yet, goes away for 5 s, and comes back.
func TestSubscriber_FindsARestartedPublisher(t *testing.T) {
	t.Parallel()
	endpoint := freeEndpoint(t)
	s := subscribe(t, endpoint)
	first := zmqtest.Start(t, publish, endpoint, "first", "")
	s.has(t, "first")
	first.Kill()
	<-time.After(5 * time.Second) // an outage that the sockets of zmq4 don't survive
	zmqtest.Start(t, publish, endpoint, "second", "heartbeats")
	s.has(t, "second")
	if ups := s.ups.Load(); ups != 2 {
		t.Errorf("up %d times, want 2", ups)
	}
}

// A publisher that breaks the protocol, harms nothing; a panic of a handler costs a connection.
func TestSubscriber_BadPublisher(t *testing.T) {
	t.Parallel()
	l, endpoint := listen(t)
	defer l.Close()
	got := newInbox()
	var log logtest.Log
	run(t, (&Subscriber{Endpoint: endpoint, Logger: log.Logger(), Up: func() {}, Handle: func(frames [][]byte) {
		switch string(frames[0]) {
		case "other":
			return
		case "kv-panic":
			panic("no good")
		}
		got.handle(frames)
	}}).Run)
	accept := func() net.Conn {
		conn, err := l.Accept()
		if err != nil {
			t.Fatalf("accept: %v", err)
		}
		return conn
	}
	for _, said := range [][]byte{
		[]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat("x", 64)),
		append(append(greeting(), ready("PUB")...), long(0, 1<<49)...),
		append(append(append(greeting(), ready("PUB")...), frame("other")...), frame("kv-panic")...),
	} {
		conn := accept()
		_, _ = conn.Write(said)
		(&rawPeer{conn, t}).wantClosed("a bad publisher")
		conn.Close()
	}
	conn := accept()
	defer conn.Close()
	_, _ = conn.Write(append(append(append(greeting(), ready("PUB")...), frame("other")...), frame("kv good")...))
	if all := got.atLeast(t, 1); all[0] != "kv good" {
		t.Errorf("got %q", all)
	}
	if log.Count("no good") != 1 {
		t.Error("the log does not say that the handler panicked")
	}
}

// replay is the ROUTER of vLLM that keeps KV events: it answers a first number with all from there on, and an end.
const replay = `
import sys, zmq
socket = zmq.Context().socket(zmq.ROUTER)
port = socket.bind_to_random_port("tcp://127.0.0.1")
print(port)
while True:
    client, empty, start = socket.recv_multipart()
    for i in range(int.from_bytes(start, "big"), 5):
        socket.send_multipart([client, b"", b"kv-events", i.to_bytes(8, "big"), b"payload %d" % i])
    socket.send_multipart([client, b"", b"", b"\xff" * 8, b""])
`

func TestAsk_ReplaysEvents(t *testing.T) {
	t.Parallel()
	endpoint := "tcp://127.0.0.1:" + zmqtest.Start(t, replay).Line()
	for range 2 {
		got := newInbox()
		err := Ask(t.Context(), endpoint, Limits{}, [][]byte{{0, 0, 0, 0, 0, 0, 0, 2}}, func(frames [][]byte) (bool, error) {
			got.handle(frames)
			return len(frames[0]) > 0, nil
		})
		want := []string{"kv-events|\x00\x00\x00\x00\x00\x00\x00\x02|payload 2", "kv-events|\x00\x00\x00\x00\x00\x00\x00\x03|payload 3",
			"kv-events|\x00\x00\x00\x00\x00\x00\x00\x04|payload 4", "|\xff\xff\xff\xff\xff\xff\xff\xff|"}
		if all := got.all; err != nil || strings.Join(all, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, error %v, want %q", all, err, want)
		}
	}
	errMine := errors.New("mine")
	err := Ask(t.Context(), endpoint, Limits{}, [][]byte{{0}}, func([][]byte) (bool, error) { return true, errMine })
	if !errors.Is(err, errMine) {
		t.Errorf("got %v, want %v", err, errMine)
	}
}

func TestAsk_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	endpoint := "tcp://127.0.0.1:" + zmqtest.Start(t, replay).Line()
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Ask(ctx, endpoint, Limits{}, [][]byte{make([]byte, 8)}, func([][]byte) (bool, error) {
		cancel(errTestEnds)
		return true, nil
	})
	if !errors.Is(err, errTestEnds) {
		t.Errorf("got %v, want %v", err, errTestEnds)
	}
	if err := Ask(t.Context(), freeEndpoint(t), Limits{}, nil, nil); err == nil {
		t.Error("no error of an endpoint where nobody listens")
	}
}

func TestAsk_RefusesAnswersWithoutADelimiter(t *testing.T) {
	t.Parallel()
	l, endpoint := listen(t)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write(append(append(greeting(), ready("ROUTER")...), frame("no delimiter")...))
		(&rawPeer{conn, t}).wantClosed("after a bad answer")
	}()
	if err := Ask(t.Context(), endpoint, Limits{}, [][]byte{{1}}, nil); err == nil || !strings.Contains(err.Error(), "empty first frame") {
		t.Errorf("got %v", err)
	}
}
