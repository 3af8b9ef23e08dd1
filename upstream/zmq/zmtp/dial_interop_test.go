package zmtp

import (
	"carryover/logtest"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// A publisher that breaks the protocol, harms nothing; a panic of a handler costs a connection.
func TestSubscriber_BadPublisher(t *testing.T) {
	t.Parallel()
	l, endpoint := zmqtest.Listen(t)
	defer l.Close()
	got := newInbox()
	var log logtest.Log
	zmqtest.Run(t, (&Subscriber{Endpoint: endpoint, Logger: log.Logger(), Up: func() {}, Handle: func(frames [][]byte) {
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
		slices.Concat(greeting(), ready("PUB"), long(0, 1<<49)),
		slices.Concat(greeting(), ready("PUB"), frame("other"), frame("kv-panic")),
	} {
		conn := accept()
		_, _ = conn.Write(said)
		(&rawPeer{conn, t}).wantClosed("a bad publisher")
		conn.Close()
	}
	conn := accept()
	defer conn.Close()
	_, _ = conn.Write(slices.Concat(greeting(), ready("PUB"), frame("other"), frame("kv good")))
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
	ctx, cancel := context.WithCancelCause(t.Context())
	err = Ask(ctx, endpoint, Limits{}, [][]byte{make([]byte, 8)}, func([][]byte) (bool, error) {
		cancel(zmqtest.ErrEnds)
		return true, nil
	})
	if !errors.Is(err, zmqtest.ErrEnds) {
		t.Errorf("got %v, want %v", err, zmqtest.ErrEnds)
	}
	if err := Ask(t.Context(), zmqtest.Free(t), Limits{}, nil, nil); err == nil {
		t.Error("no error of an endpoint where nobody listens")
	}
}

func TestAsk_RefusesAnswersWithoutADelimiter(t *testing.T) {
	t.Parallel()
	l, endpoint := zmqtest.Listen(t)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write(slices.Concat(greeting(), ready("ROUTER"), frame("no delimiter")))
		(&rawPeer{conn, t}).wantClosed("after a bad answer")
	}()
	if err := Ask(t.Context(), endpoint, Limits{}, [][]byte{{1}}, nil); err == nil || !strings.Contains(err.Error(), "empty first frame") {
		t.Errorf("got %v", err)
	}
}
