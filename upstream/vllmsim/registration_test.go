package vllmsim

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// router is a proxy's end of registrations with libzmq: it prints the identity and the message of each ping.
const router = `
import sys, json, zmq, msgpack
sock = zmq.Context().socket(zmq.ROUTER)
if len(sys.argv) > 1: sock.bind(sys.argv[1])
else: sock.bind_to_random_port("tcp://127.0.0.1")
print(sock.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://"))
while True:
    identity, message = sock.recv_multipart()
    print(json.dumps({"identity": identity.decode("latin-1") if len(identity) > 5 else "", "message": msgpack.loads(message)}))
`

type ping struct {
	Identity string
	Message  object
}

func nextPing(t *testing.T, from *zmqtest.Process) (p ping) {
	t.Helper()
	if err := json.Unmarshal([]byte(from.Line()), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// written is an exchange that was written from vLLM's source.
func written(t *testing.T, connector, name string) object {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "exchanges", connector, name))
	if err != nil {
		t.Fatal(err)
	}
	o := object{}
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// wantShape checks that two objects have the same members, of the same types.
func wantShape(t *testing.T, what string, got, want object) {
	t.Helper()
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Errorf("%s: got members %v, want %v", what, g, w)
	}
	for name := range want {
		port := strings.HasSuffix(name, "_port") // a number or a text, as the engine was configured
		if !port && reflect.TypeOf(got[name]) != reflect.TypeOf(want[name]) {
			t.Errorf("%s.%s: got %T, want %T", what, name, got[name], want[name])
		}
	}
}

func TestRegistration_LibzmqHearsWhatVLLMSays(t *testing.T) {
	for name, row := range map[string]struct {
		connector, file string
		before          bool
	}{
		"MoRI-IO":        {ConnectorMoRIIO, "01-registration.json", false},
		"MoRI-IO before": {ConnectorMoRIIO, "02-registration-before.json", true},
	} {
		t.Run(name, func(t *testing.T) {
			python := zmqtest.Start(t, router)
			proxy := python.Line()
			i := startInstance(t, func(c *Config) {
				c.Connector, c.Role, c.TimeScale = row.connector, "prefill", 100
				c.Registration = RegistrationConfig{Proxy: proxy, Before: row.before}
			})
			p := nextPing(t, python)
			wantShape(t, "ping", p.Message, written(t, row.connector, row.file)["message"].(object))
			if got := p.Message["type"]; got != "P" && (got != "register" || p.Message["role"] != "P") {
				t.Errorf("got %v", p.Message)
			}
			if p.Identity != "" {
				t.Errorf("identity %q, want none", p.Identity)
			}
			if again := nextPing(t, python); !reflect.DeepEqual(again, p) {
				t.Errorf("then it says %v", again)
			}
			python.Kill() // the engine goes on where a proxy is again
			python = zmqtest.Start(t, router, "tcp://"+proxy)
			python.Want(proxy)
			if again := nextPing(t, python); !reflect.DeepEqual(again.Message, p.Message) {
				t.Errorf("to another proxy it says %v", again)
			}
			if err := i.SetFault(Fault{Kind: FaultRefuse}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The legs that were written from vLLM's source are answered in the shape that was.
func TestWritten_SimulatorAnswersInShape(t *testing.T) {
	answered := func(i *Instance, connector, name, id string, members object) (got, want object) {
		e := written(t, connector, name)
		body := with(e["request"].(object)["body"].(object), members)
		a := postAs(t, i, id, body)
		if a.status != 200 {
			t.Fatalf("%s/%s: %d %s", connector, name, a.status, a.raw)
		}
		return a.body, e["response"].(object)["json"].(object)
	}
	model := func(c *Config) { c.Model, c.MoRIIO.Read = "tiny", true }
	mori := startAddressed(t, ConnectorMoRIIO, model)
	params := with(written(t, "moriio", "03-prefill.json")["request"].(object)["body"].(object)["kv_transfer_params"].(object),
		object{"remote_host": "127.0.0.1", "remote_notify_port": mori.d.ranks[0].sidePort})
	got, want := answered(mori.p, "moriio", "03-prefill.json", mori.id(someTail), object{"kv_transfer_params": params})
	wantShape(t, "params", got["kv_transfer_params"].(object), want["kv_transfer_params"].(object))
	if got["kv_transfer_params"].(object)["transfer_id"] != params["transfer_id"] || len(ids(got["prompt_token_ids"])) != 3 {
		t.Errorf("got %v, want the transfer and the ids that were sent", got)
	}
	got, _ = answered(mori.d, "moriio", "04-decode-read.json", mori.id(someTail),
		object{"kv_transfer_params": with(got["kv_transfer_params"].(object), object{"prompt_token_ids": params["prompt_token_ids"]})})
	if got["kv_transfer_params"] != nil || mori.d.Stats().Loads != 1 {
		t.Errorf("decode answers %v", got)
	}
	mori.wantQuiet(t)
}
