package discovery_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/discovery"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

// announcer is an engine's ping thread in both forms, as vLLM has it, with libzmq: a DEALER that
// says again and again who it is. Each line on its input is a form that it says from then on, every 50 ms; "stop" ends it.
const announcer = `
import sys, threading, time, zmq, msgpack
forms = {
    "prefill": ({"type": "P", "http_address": "10.0.1.2:20001", "zmq_address": "host:10.0.1.2,handshake:21001,notify:21002", "dp_size": 1, "tp_size": 1, "transfer_mode": "READ"}, b"10.0.1.2:21001"),
    "decode": ({"type": "D", "http_address": "10.0.1.3:8000", "zmq_address": "host:10.0.1.3,handshake:6301,notify:61005", "dp_size": 2, "tp_size": 8, "transfer_mode": "READ"}, None),
    "hello": ({"type": "HELLO"}, None),
    "old": ({"type": "register", "role": "P", "index": "1", "request_address": "http://10.0.1.4:8000/v1/completions", "handshake_port": 6301, "notify_port": 61005, "dp_size": 1, "tp_size": 1, "transfer_mode": "WRITE"}, None),
    "garbage": (b"\xc1\xff\xff", None),
}
context = zmq.Context()
def ping(form):
    data, identity = forms[form]
    sock = context.socket(zmq.DEALER)
    if identity: sock.setsockopt(zmq.IDENTITY, identity)
    sock.setsockopt(zmq.LINGER, 0)
    sock.connect(sys.argv[1])
    while True:
        sock.send(data if isinstance(data, bytes) else msgpack.dumps(data))
        time.sleep(0.05)
print("ready")
for line in sys.stdin:
    threading.Thread(target=ping, args=(line.strip(),), daemon=True).start()
    print("pings")
`

// announce starts a program that announces engines to a source.
func announce(t *testing.T, address string) *zmqtest.Process {
	t.Helper()
	python := zmqtest.Start(t, announcer, "tcp://"+address)
	python.Want("ready")
	return python
}

// says has the program announce an engine from now on.
func says(python *zmqtest.Process, form string) {
	python.Say(form)
	python.Want("pings")
}

func listenOn(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func TestZMQ_LibzmqRegistersInBothForms(t *testing.T) {
	book := &journal{}
	listener := listenOn(t, "127.0.0.1:0")
	address := listener.Addr().String()
	source := watch(t, &discovery.ZMQ{Listener: listener, TTL: 2 * time.Second, Logger: book.logger()})
	source.want(t, "")
	python := announce(t, address)
	says(python, "garbage")
	says(python, "hello")
	says(python, "prefill")
	source.want(t, "10.0.1.2:20001")
	says(python, "decode")
	source.want(t, "10.0.1.2:20001 10.0.1.3:8000")
	says(python, "old")
	all := <-source.lists
	if got := names(all); got != "10.0.1.2:20001 10.0.1.3:8000 10.0.1.4:8000" {
		t.Fatalf("set(%s)", got)
	}
	for i, want := range []string{"host:10.0.1.2,handshake:21001,notify:21002", "host:10.0.1.3,handshake:6301,notify:61005", "host:10.0.1.4,handshake:6301,notify:61005"} {
		if got := all[i].Announced.Address; got != want {
			t.Errorf("%s announces %s, want %s", all[i].Name, got, want)
		}
	}
	source.quiet(t)

	python.Kill() // who is silent goes
	for source.next(t) != "" {
	}
	python = announce(t, address) // and comes back when it is started again
	says(python, "decode")
	source.want(t, "10.0.1.3:8000")
	if found := book.lines("does not register any more"); len(found) != 3 {
		t.Errorf("got %d lines of removals, want 3: %s", len(found), found)
	}
}

// A DEALER of libzmq connects anew by itself, so that engines need not notice that a proxy was restarted.
func TestZMQ_EnginesFindAProxyThatIsRestarted(t *testing.T) {
	listener := listenOn(t, "127.0.0.1:0")
	address := listener.Addr().String()
	python := announce(t, address)
	says(python, "prefill")
	says(python, "decode")
	first, stop := context.WithCancel(t.Context())
	err := (&discovery.ZMQ{Listener: listener}).Watch(first, func(all []upstream.Instance) {
		if len(all) == 2 {
			stop()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	source := watch(t, &discovery.ZMQ{Listen: address})
	source.want(t, "")
	for got := source.next(t); len(strings.Fields(got)) < 2; {
		got = source.next(t)
	}
}

func TestZMQ_APortThatIsTakenIsAFault(t *testing.T) {
	listener := listenOn(t, "127.0.0.1:0")
	defer listener.Close()
	err := (&discovery.ZMQ{Listen: listener.Addr().String()}).Watch(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "listen for registrations") {
		t.Errorf("Watch = %v", err)
	}
}
