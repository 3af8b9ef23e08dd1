package kvready

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

// serve runs waits on a free loopback port.
func serve(tb testing.TB, w *Waits) *net.TCPAddr {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	run(tb, func(ctx context.Context) error { return w.Serve(ctx, l) })
	return l.Addr().(*net.TCPAddr)
}

// worker is a prefill worker as LMCache has them: a PUSH socket that connects at its start, packs with another library than
// ours, and says of each request that it is told the class and the id.
const worker = `
import sys, zmq, msgpack
from zmq.utils.monitor import recv_monitor_message
socket = zmq.Context().socket(zmq.PUSH)
monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
socket.connect(sys.argv[1])
print("connected", flush=True)
for line in sys.stdin:
    kind, _, id = line.strip().partition(" ")
    if kind == "gone":
        recv_monitor_message(monitor)
        print("gone", flush=True)
    elif kind == "garbage":
        socket.send(bytes.fromhex(id))
    elif kind == "parts":
        socket.send_multipart([msgpack.packb({"type": "ProxyNotif", "req_id": i}) for i in id.split()])
    elif kind in ("READY", "FAILED"):
        id, _, rank = id.partition(" ")
        socket.send(msgpack.packb({"type": "StoragePDStatus", "req_id": id, "tp_rank": int(rank), "state": kind, "writer_epoch": 1,
            "namespace_identity": "n", "checkpoint_seq": 2**40, "key_count": 3, "manifest_digest": b"\0\1", "total_logical_bytes": 2**33,
            "total_padded_bytes": 2**33, "error_stage": None, "error_text": None, "ack_endpoint": None}))
    else:
        message = {"type": kind, "req_id": id} if kind != "-" else {"req_id": id}
        if kind == "CancelNotif": message["keys"] = ["a", "b"]
        socket.send(msgpack.packb(message))
`

func TestServe_WorkersOfLMCache(t *testing.T) {
	t.Parallel()
	w := New(Config{})
	endpoint := "tcp://" + serve(t, w).String()
	ranks := make([]*zmqtest.Process, 4)
	for i := range ranks {
		ranks[i] = zmqtest.Start(t, worker, endpoint)
	}
	for _, class := range []string{"ProxyNotif", "NixlProxyNotif", "-"} {
		a := w.Expect(class, len(ranks))
		for _, said := range []string{"garbage c1", "garbage 05", "garbage dfffffffff", "CancelNotif " + class, "AllocResponse " + class, "ProxyNotif stale"} {
			ranks[0].Say(said)
		}
		for i, rank := range ranks {
			if i > 0 {
				wantReady(t, a, false)
			}
			rank.Say(class + " " + class)
		}
		await(t, a)
		a.Close()
	}
	ready, failed, parts := w.Expect("ready", 2), w.Expect("failed", 2), w.Expect("parts", 2)
	ranks[1].Say("READY ready 0")
	ranks[2].Say("READY ready 0")
	ranks[3].Say("READY ready 1")
	await(t, ready)
	ranks[0].Say("FAILED failed 3")
	eventually(t, "a failure", func() bool { return w.Stats().Failed == 1 })
	if _, err := isReady(failed); err == nil {
		t.Error("no error of a request whose KV will not arrive")
	}
	ranks[0].Say("parts parts parts")
	await(t, parts)
	eventually(t, "the repeated status", func() bool { return w.Stats().Surplus == 1 })
	wantStats(t, w, Stats{Received: 3*10 + 6, Counted: 3*4 + 4, Failed: 1, Surplus: 1, Unknown: 3, Ignored: 6, Malformed: 9, Waiting: 3})
	for _, a := range []upstream.Arrival{ready, failed, parts} {
		a.Close()
	}
}

// A restart of ours gets what libzmq has kept for requests that nobody knows any more, and drops it.
func TestServe_DropsWhatIsStaleAfterARestart(t *testing.T) {
	t.Parallel()
	first := New(Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	stop := run(t, func(ctx context.Context) error { return first.Serve(ctx, l) })
	rank := zmqtest.Start(t, worker, "tcp://"+l.Addr().String())
	a := first.Expect("before", 1)
	rank.Say("ProxyNotif before")
	await(t, a)
	stop()
	rank.Want("connected")
	rank.Say("gone") // what libzmq writes before it has noticed is lost
	rank.Want("gone")
	for i := range 100 {
		rank.Say(fmt.Sprint("ProxyNotif meanwhile", i))
	}
	again, err := net.Listen("tcp", l.Addr().String())
	must(t, err)
	second := New(Config{})
	run(t, func(ctx context.Context) error { return second.Serve(ctx, again) })
	b := second.Expect("after", 1)
	rank.Say("ProxyNotif after")
	await(t, b)
	eventually(t, "the stale ones", func() bool { return second.Stats().Received == 101 && addsUp(second.Stats()) })
	wantStats(t, second, Stats{Received: 101, Counted: 1, Unknown: 100, Waiting: 1})
}

// pusher is a peer that writes notifications as fast as it can.
type pusher struct {
	tb   testing.TB
	conn net.Conn
}

// connectPush introduces itself as PUSH, and reads nothing but the other side's introduction.
func connectPush(tb testing.TB, addr *net.TCPAddr) pusher {
	tb.Helper()
	conn, err := net.Dial("tcp", addr.String())
	must(tb, err)
	tb.Cleanup(func() { conn.Close() })
	hello := make([]byte, 64)
	hello[0], hello[9], hello[10] = 0xff, 0x7f, 3
	copy(hello[12:], "NULL")
	body := binary.BigEndian.AppendUint32([]byte("\x05READY\x0bSocket-Type"), 4)
	body = append(body, "PUSH"...)
	hello = append(append(hello, 4, byte(len(body))), body...)
	if _, err := conn.Write(hello); err != nil {
		tb.Fatalf("introduce: %v", err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 64)); err != nil {
		tb.Fatalf("read a greeting: %v", err)
	}
	return pusher{tb, conn}
}

// push writes a batch of frames.
func (p pusher) push(batch []byte) {
	if _, err := p.conn.Write(batch); err != nil {
		p.tb.Errorf("push: %v", err)
	}
}

// appendFrame appends a short frame.
func appendFrame(b, content []byte) []byte {
	return append(append(b, 0, byte(len(content))), content...)
}

// Many peers at once, two thirds of whose ids nobody expects: none is lost, and memory stays as it is.
func TestServe_LosesNothing(t *testing.T) {
	w := New(Config{})
	addr := serve(t, w)
	const peers, batch, rounds = 8, 1000, 3
	pushers := make([]pusher, peers)
	for i := range pushers {
		pushers[i] = connectPush(t, addr)
	}
	send := func(round int) {
		arrivals := make([][]upstream.Arrival, peers)
		var all sync.WaitGroup
		for i, p := range pushers {
			all.Go(func() {
				var frames []byte
				for n := range batch {
					id := fmt.Sprintf("%08d-%04d-%016d", round, i, n)
					arrivals[i] = append(arrivals[i], w.Expect(id, 1))
					frames = appendFrame(frames, notif("ProxyNotif", id))
					frames = appendFrame(frames, notif("ProxyNotif", "stale-"+id))
					frames = appendFrame(frames, notif("ProxyNotif", "stale-again-"+id))
				}
				p.push(frames)
			})
		}
		all.Wait()
		for _, its := range arrivals {
			for _, a := range its {
				await(t, a)
				a.Close()
			}
		}
	}
	send(rounds)
	before := liveHeap()
	for round := range rounds {
		send(round)
	}
	if grown := liveHeap() - before; grown > 4<<20 {
		t.Errorf("%d notifications take %d bytes", rounds*peers*batch*3, grown)
	}
	expected := uint64((rounds + 1) * peers * batch)
	eventually(t, "all notifications", func() bool { return w.Stats().Received == 3*expected })
	wantStats(t, w, Stats{Received: 3 * expected, Counted: expected, Unknown: 2 * expected})
}
