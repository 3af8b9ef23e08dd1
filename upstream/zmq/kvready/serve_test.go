package kvready

import (
	"context"
	"fmt"
	"net"
	"testing"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

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
	l, endpoint := zmqtest.Listen(t)
	zmqtest.Run(t, func(ctx context.Context) error { return w.Serve(ctx, l) })
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
	zmqtest.Eventually(t, "a failure", func() bool { return w.Stats().Failed == 1 })
	if _, err := isReady(failed); err == nil {
		t.Error("no error of a request whose KV will not arrive")
	}
	ranks[0].Say("parts parts parts")
	await(t, parts)
	zmqtest.Eventually(t, "the repeated status", func() bool { return w.Stats().Surplus == 1 })
	wantStats(t, w, Stats{Received: 3*10 + 6, Counted: 3*4 + 4, Failed: 1, Surplus: 1, Unknown: 3, Ignored: 6, Malformed: 9, Waiting: 3})
	for _, a := range []upstream.Arrival{ready, failed, parts} {
		a.Close()
	}
}

// A restart of ours gets what libzmq has kept for requests that nobody knows any more, and drops it.
func TestServe_DropsWhatIsStaleAfterARestart(t *testing.T) {
	t.Parallel()
	first := New(Config{})
	l, endpoint := zmqtest.Listen(t)
	stop := zmqtest.Run(t, func(ctx context.Context) error { return first.Serve(ctx, l) })
	rank := zmqtest.Start(t, worker, endpoint)
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
	zmqtest.Must(t, err)
	second := New(Config{})
	zmqtest.Run(t, func(ctx context.Context) error { return second.Serve(ctx, again) })
	b := second.Expect("after", 1)
	rank.Say("ProxyNotif after")
	await(t, b)
	zmqtest.Eventually(t, "the stale ones", func() bool { return second.Stats().Received == 101 && addsUp(second.Stats()) })
	wantStats(t, second, Stats{Received: 101, Counted: 1, Unknown: 100, Waiting: 1})
}
