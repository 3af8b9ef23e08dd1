package kvevents

import (
	"fmt"
	"slices"
	"testing"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// publisher does what vLLM's ZmqEventPublisher does, with libzmq: a thread that answers replays and publishes what it is told on
// standard input. "store H" publishes a batch that stores block H; "drop H" puts it into the replay buffer only.
const publisher = `
import sys, time, queue, threading, collections, msgpack, zmq
endpoint, replay, topic, steps = sys.argv[1:5]
ctx = zmq.Context()
def bound(kind, where):
    socket = ctx.socket(kind)
    while True:
        try:
            socket.bind(where)
            return socket
        except zmq.ZMQError:
            time.sleep(0.05)
pub = bound(zmq.PUB, endpoint)
router = bound(zmq.ROUTER, replay) if replay else None
lines = queue.Queue()
def read():
    for line in sys.stdin:
        lines.put(line.split())
threading.Thread(target=read, daemon=True).start()
buffer, seq = collections.deque(maxlen=int(steps)), 0
print("bound")
def batch(hash):
    event = {"type": "BlockStored", "block_hashes": [hash.to_bytes(32, "big") if hash % 2 else hash], "parent_block_hash": None,
             "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None}
    return msgpack.packb([time.time(), [event], 0])
while True:
    if router and router.poll(0):
        client, _, start = router.recv_multipart()
        for n, payload in buffer:
            if n >= int.from_bytes(start, "big"):
                number = n.to_bytes(8, "big")
                router.send_multipart([client, b"", topic.encode(), number, payload])
        router.send_multipart([client, b"", b"", b"\xff" * 8, b""])
    try:
        what, hash = lines.get(timeout=0.02)
    except queue.Empty:
        continue
    payload = batch(int(hash))
    if what == "store":
        pub.send_multipart([topic.encode(), seq.to_bytes(8, "big"), payload])
    buffer.append((seq, payload))
    seq += 1
`

// follows runs a subscription until the test or the returned function ends it.
func follows(tb testing.TB, s Subscription) (n *notes, stop func()) {
	tb.Helper()
	n = &notes{}
	s.Sink = n
	end := zmqtest.Run(tb, s.Run)
	return n, func() {
		end()
		if _, known := n.holds(); known {
			tb.Error("after the end it is known what the engine holds")
		}
	}
}

// await waits until a sink knows that the engine holds exactly these blocks.
func (n *notes) await(tb testing.TB, want ...uint64) {
	tb.Helper()
	zmqtest.Eventually(tb, fmt.Sprint("holds ", want), func() bool {
		held, known := n.holds()
		return known && slices.Equal(held, want)
	})
}

func TestSubscription_Libzmq(t *testing.T) {
	t.Parallel()
	endpoint, replay := zmqtest.Free(t), zmqtest.Free(t)
	start := func() *zmqtest.Process {
		p := zmqtest.Start(t, publisher, endpoint, replay, "kv-events", "10")
		p.Want("bound")
		return p
	}
	first := start()
	first.Say("store 1") // nobody has subscribed
	first.Say("store 2")
	s := Subscription{Endpoint: endpoint, Replay: replay}
	n, stop := follows(t, s)
	n.await(t, 1, 2)
	first.Say("store 3")
	n.await(t, 1, 2, 3)
	first.Say("drop 4")
	first.Say("drop 5")
	first.Say("store 6")
	n.await(t, 1, 2, 3, 4, 5, 6)

	first.Kill() // the engine restarts
	second := start()
	n.await(t)
	second.Say("store 7")
	n.await(t, 7)

	stop() // we do
	n, _ = follows(t, s)
	n.await(t, 7)
	for i := range 20 { // more than are replayed
		second.Say(fmt.Sprint("drop ", 100+i))
	}
	second.Say("store 8")
	zmqtest.Eventually(t, "what the engine holds is not known", func() bool { _, known := n.holds(); return !known })
}

// Without a replay endpoint what is known lasts until the first gap.
func TestSubscription_LibzmqWithoutReplay(t *testing.T) {
	t.Parallel()
	endpoint := zmqtest.Free(t)
	n, _ := follows(t, Subscription{Endpoint: endpoint}) // before the engine
	heard := func(text string) {
		t.Helper()
		zmqtest.Eventually(t, text, func() bool { return slices.Contains(n.all(), text) })
	}
	p := zmqtest.Start(t, publisher, endpoint, "", "", "10")
	p.Want("bound")
	// A subscription takes a moment to get there, and what is published before does not come.
	for hash := uint64(1000); len(n.all()) == 0; hash++ {
		p.Say(fmt.Sprint("store ", hash))
		zmqtest.Start(t, "pass").Wait()
	}
	p.Say("store 1")
	heard(says(1))
	p.Say("drop 2")
	p.Say("store 3")
	heard(says(3))
	if _, known := n.holds(); known {
		t.Errorf("behind a gap it is known what the engine holds: %q", n.all())
	}
}

// What vLLM 0.32 has answered to questions for old batches.
func TestSubscription_RecordedReplays(t *testing.T) {
	for i, want := range []int{8, 3, 0} {
		s := recorded(t)[9+i]
		batches := 0
		for _, frames := range s.ReceivedFramesHex {
			seq, payload, ok := split(unhex(t, frames)[1:]) // as a REQ takes them
			if !ok {
				t.Fatalf("frames %q are no answer", frames)
			}
			if seq == endOfReplay {
				continue
			}
			batches++
			if err := (&decoder{}).batch(payload, &notes{}); err != nil {
				t.Errorf("batch %d: %v", seq, err)
			}
		}
		if batches != want {
			t.Errorf("replay %d: %d batches, want %d", i, batches, want)
		}
	}
}
