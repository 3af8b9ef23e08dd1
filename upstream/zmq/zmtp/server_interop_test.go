package zmtp

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// push sends messages "<name> <i>" and ends when all are on the wire.
const push = `
import sys, zmq, time
endpoint, name, count, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
context = zmq.Context()
socket = context.socket(zmq.PUSH)
socket.connect(endpoint)
for i in range(count):
    socket.send(b"%s %d" % (name.encode(), i))
    if pause: time.sleep(pause)
    if i == count // 2: print("half")
socket.close(linger=60000)
context.term()
print("sent")
`

// from returns the numbers of the messages of one sender, in the order in which they came.
func from(all []string, name string) []int {
	var numbers []int
	for _, message := range all {
		if number, its := strings.CutPrefix(message, name+" "); its {
			n, _ := strconv.Atoi(number)
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// upTo returns 0, 1, … n-1.
func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

func TestServer_TakesFromPush(t *testing.T) {
	t.Parallel()
	_, endpoint, got := served(t, Limits{})
	const senders, each = 3, 2000
	for i := range senders {
		zmqtest.Start(t, push, endpoint, fmt.Sprint("rank", i), strconv.Itoa(each), "0")
	}
	all := got.atLeast(t, senders*each)
	for i := range senders {
		if numbers := from(all, fmt.Sprint("rank", i)); !slices.Equal(numbers, upTo(each)) {
			t.Errorf("rank %d: got %d messages, want %d in order", i, len(numbers), each)
		}
	}
	// A process that comes anew.
	zmqtest.Start(t, push, endpoint, "again", "10", "0")
	got.await(t, "messages of a new process", func(all []string) bool { return len(from(all, "again")) == 10 })
}

// libzmq keeps what it can't send and connects again, so that a restart of ours loses nothing under a slow sender.
func TestServer_RestartsUnderASlowSender(t *testing.T) {
	t.Parallel()
	l, endpoint := zmqtest.Listen(t)
	got := newInbox()
	server := &Server{Handle: got.handle}
	stop := serve(t, server, l)
	const count = 200
	sender := zmqtest.Start(t, push, endpoint, "slow", strconv.Itoa(count), "0.01")
	got.atLeast(t, 20)
	stop()
	sender.Want("half") // with nobody listening
	serve(t, server, listenAgain(t, l))
	got.await(t, "all messages", func(all []string) bool { return slices.Equal(from(all, "slow"), upTo(count)) })
}

// listenAgain listens where another listener has.
func listenAgain(tb testing.TB, old net.Listener) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", old.Addr().String())
	if err != nil {
		tb.Fatalf("listen again: %v", err)
	}
	return l
}

// A peer of libzmq with heartbeats closes connections on which none are answered, and connects again.
func TestServer_AnswersHeartbeats(t *testing.T) {
	t.Parallel()
	inner, endpoint := zmqtest.Listen(t)
	l := &failingListener{Listener: inner}
	got := newInbox()
	serve(t, &Server{Handle: got.handle}, l)
	zmqtest.Start(t, `
import sys, zmq, time
socket = zmq.Context().socket(zmq.PUSH)
socket.setsockopt(zmq.HEARTBEAT_IVL, 50)
socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 4000)
socket.setsockopt(zmq.HEARTBEAT_TTL, 30000)
socket.connect(sys.argv[1])
time.sleep(5)
while True:
    socket.send(b"after heartbeats")
    time.sleep(0.1)
`, endpoint)
	got.atLeast(t, 1)
	if n := l.calls.Load(); n != 2 {
		t.Errorf("waits for connection %d after 100 heartbeats, want the second", n)
	}
}

// What one handler takes of time costs others none.
func TestServer_OneSlowHandlerSlowsNoOther(t *testing.T) {
	t.Parallel()
	l, _ := zmqtest.Listen(t)
	got, gate := newInbox(), make(chan struct{})
	serve(t, &Server{Handle: func(frames [][]byte) {
		if string(frames[0]) == "slow" {
			<-gate
		}
		got.handle(frames)
	}}, l)
	connectPush(t, l, frame("slow"))
	connectPush(t, l, frame("quick"))
	if all := got.atLeast(t, 1); all[0] != "quick" {
		t.Errorf("got %q first", all[0])
	}
	close(gate)
	got.atLeast(t, 2)
}

// The greeting must go out before anything is read: libzmq waits for it after 10 bytes of its own.
func TestServer_SpeaksFirst(t *testing.T) {
	t.Parallel()
	l, _ := zmqtest.Listen(t)
	serve(t, &Server{Handle: func([][]byte) {}}, l)
	p := connect(t, l)
	_ = p.SetReadDeadline(time.Now().Add(limit))
	got := make([]byte, 64)
	if n, err := p.Read(got); err != nil || n != 64 || string(got[12:16]) != "NULL" {
		t.Errorf("got %x, error %v, want a greeting", got[:n], err)
	}
}
