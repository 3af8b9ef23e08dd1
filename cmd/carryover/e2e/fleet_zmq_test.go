package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

// speaking is how the engines of a rig that register hand KV over.
type speaking struct {
	connector string
	read      bool // MoRI-IO's READ mode
	before    bool // MoRI-IO's announcements up to 2026-04-22
}

// speakers are all ways.
func speakers() map[string]speaking {
	return map[string]speaking{
		"moriio read": {connector: config.ConnectorMoRIIO, read: true}, "moriio write": {connector: config.ConnectorMoRIIO},
		"moriio before": {connector: config.ConnectorMoRIIO, read: true, before: true},
	}
}

// handingOver are the ways that differ in more than announcements.
func handingOver() map[string]speaking {
	all := speakers()
	delete(all, "moriio before")
	return all
}

// Engines of these rigs announce themselves every 300 ms, and go five seconds after the last time.
const (
	announcesFaster = 10
	announcedTTL    = 5 * time.Second
)

// registered is the whole program in front of instances that register by themselves.
type registered struct {
	*operated
	as      speaking
	address string // where they do
}

// registeredConfig says what a rig of these is made of; nothing listed is one of each role.
type registeredConfig struct {
	as                speaking
	prefills, decodes int
	change            func(*vllmsim.Config)
	flags             []string
	text              string // of the configuration file
	replace           func(*server.Deps)
	quiet             bool // instances announce nothing
}

func startRegistered(t *testing.T, c registeredConfig) *registered {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // the program has done so, if it came to run
	r := &registered{operated: &operated{file: t.TempDir() + "/carryover.yaml"}, as: c.as, address: listener.Addr().String()}
	r.configure(t, c.text)
	prefill, decode := []*vllmsim.Instance{}, []*vllmsim.Instance{}
	for range max(c.prefills, 1) {
		prefill = append(prefill, r.instance(t, config.RolePrefill, c))
	}
	for range max(c.decodes, 1) {
		decode = append(decode, r.instance(t, config.RoleDecode, c))
	}
	r.rig = startRig(t, rigConfig{
		flags:   slices.Concat([]string{"--config", r.file, "--connector", c.as.connector, "--zmq-discovery-listen", r.address}, c.flags),
		replace: c.replace,
		wire: func(_ config.Config, p *app.Proxy) {
			r.proxy, p.Sources.Announced.Listener, p.Sources.Announced.TTL = p, listener, announcedTTL
		},
	})
	r.prefill, r.decode = prefill, decode
	r.await(t, prefill, decode)
	r.look()
	return r
}

// instance starts an engine that announces itself to the program.
func (r *registered) instance(t *testing.T, role string, c registeredConfig) *vllmsim.Instance {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Connector, cfg.Role, cfg.TimeScale, cfg.MoRIIO.Read = c.as.connector, role, announcesFaster, c.as.read
	cfg.MoRIIO.DeferTimeout = 10 * time.Hour // an hour, which no test takes
	cfg.Registration = vllmsim.RegistrationConfig{Proxy: r.address, Before: c.as.before}
	if c.quiet {
		cfg.Registration.Proxy = ""
	}
	if c.change != nil {
		c.change(&cfg)
	}
	return testrig.StartInstance(t, cfg, "")
}

// await waits until the fleet has exactly these instances.
func (r *registered) await(t *testing.T, prefill, decode []*vllmsim.Instance) {
	t.Helper()
	names := func(all []*vllmsim.Instance) (list []string) {
		for _, i := range all {
			list = append(list, authority(i))
		}
		slices.Sort(list)
		return list
	}
	has := func(role upstream.Role) []string { return (&changing{proxy: r.proxy}).names(role) }
	if !within(foundWithin, func() bool {
		return slices.Equal(has(upstream.RolePrefill), names(prefill)) && slices.Equal(has(upstream.RoleDecode), names(decode))
	}) {
		t.Fatalf("the fleet has %v and %v, want %v and %v", has(upstream.RolePrefill), has(upstream.RoleDecode), names(prefill), names(decode))
	}
}

// fourKinds runs a test for each kind of request, made of a text.
func fourKinds(t *testing.T, run func(t *testing.T, ask func(text string) map[string]any)) {
	t.Helper()
	for name, kind := range map[string]struct{ stream, chat bool }{
		"chat": {false, true}, "chat stream": {true, true}, "text": {false, false}, "text stream": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(text string) map[string]any {
				if kind.chat {
					return map[string]any{"model": "sim", "max_tokens": 200, "stream": kind.stream, "messages": []json.RawMessage{question(text)}}
				}
				return map[string]any{"model": "sim", "max_tokens": 200, "stream": kind.stream, "prompt": text}
			})
		})
	}
}

// saying is a request whose answer is known.
func saying(want string) map[string]any {
	return map[string]any{"model": "sim", "max_tokens": 200, "messages": []json.RawMessage{question(longText(1) + " SAY " + want)}}
}

// over sends a turn that both engines must serve, and compares the answer.
func (r *registered) over(t *testing.T, members map[string]any, want string) record.Turn {
	t.Helper()
	a, rec := r.send(t, "", members)
	if a.status != http.StatusOK || a.content != want || !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode;") || rec.End.Err != nil {
		t.Errorf("got status %d, %q, X-KV-Path %q, want %q over both: %.300s (%v)", a.status, a.content, a.header.Get("X-KV-Path"), want, a.raw, rec.End.Err)
	}
	if strings.Contains(string(a.raw), "_addr_") {
		t.Errorf("the client is told addresses of engines: %.300s", a.raw)
	}
	return rec
}

// settled checks what every test of these rigs ends with: no engine has read or written anything wrong, has died of what it was
// sent, or holds more than the test explains: pins of prefill, and pushed KV that nobody takes.
func (r *registered) settled(t *testing.T, want pins, held int) {
	t.Helper()
	r.explained(t, func() pins { return want }, held)
}

// settledUntaken is settled where prefill may hold the KV that no decode engine has come for. A leg that its turn does not wait for may
// reach prefill after the turn, so that both are counted until they agree.
func (r *registered) settledUntaken(t *testing.T, held int) {
	t.Helper()
	r.explained(t, func() pins { return pins{leased: r.untaken(t)} }, held)
}

func (r *registered) explained(t *testing.T, want func() pins, held int) {
	t.Helper()
	r.verifyPins(t, want)
	if got := r.sum(t, config.RoleDecode)["kv_held"]; got != held {
		t.Errorf("decode holds the KV of %d prompts that nobody takes, want %d", got, held)
	}
}

// untaken is how many prompts' KV prefill of MoRI-IO keeps for its time limit, because no decode engine has come for it.
func (r *registered) untaken(t *testing.T) int {
	t.Helper()
	prefill, decode := r.sum(t, config.RolePrefill), r.sum(t, config.RoleDecode)
	return prefill["capped"] - prefill["releases"] - decode["loads"]
}

func TestRegistered_InstancesComeAndGo(t *testing.T) {
	t.Parallel()
	for name, as := range speakers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := registeredConfig{as: as, flags: []string{"--routing-prefill", "round_robin", "--routing-decode", "round_robin"}}
			r := startRegistered(t, c)
			r.over(t, saying("one"), "one")
			r.prefill, r.decode = append(r.prefill, r.instance(t, config.RolePrefill, c)), append(r.decode, r.instance(t, config.RoleDecode, c))
			r.await(t, r.prefill, r.decode)
			r.look()
			for _, want := range []string{"two", "three", "four", "five"} {
				r.over(t, saying(want), want)
			}
			for _, instance := range slices.Concat(r.prefill, r.decode) {
				if instance.Stats().Finished == 0 {
					t.Errorf("%s has served nothing", instance.URL())
				}
			}
			for _, gone := range []*vllmsim.Instance{r.prefill[0], r.decode[0]} { // processes that end say no goodbye
				if err := gone.SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
					t.Fatal(err)
				}
			}
			r.await(t, r.prefill[1:], r.decode[1:])
			r.over(t, saying("six"), "six")
			for _, back := range []*vllmsim.Instance{r.prefill[0], r.decode[0]} {
				if err := back.ClearFaults(); err != nil {
					t.Fatal(err)
				}
			}
			r.await(t, r.prefill, r.decode)
			r.look()
			for _, want := range []string{"seven", "eight"} {
				r.over(t, saying(want), want)
			}
			r.settled(t, pins{}, 0)
		})
	}
}

func TestRegistered_InstancesAreRestarted(t *testing.T) {
	t.Parallel()
	for name, as := range speakers() {
		for _, role := range []string{config.RolePrefill, config.RoleDecode} {
			t.Run(name+"/"+role, func(t *testing.T) {
				t.Parallel()
				r := startRegistered(t, registeredConfig{as: as})
				r.over(t, saying("one"), "one")
				r.all(role)[0].Restart()
				r.hangUp()
				r.look()
				r.over(t, saying("two"), "two")
				r.settled(t, pins{}, 0)
			})
		}
	}
}

// An engine registers with one proxy (proxy_ip): a second replica that listens, too, hears of nobody.
func TestRegistered_OneReplicaHearsOfAnEngine(t *testing.T) {
	t.Parallel()
	as := speaking{connector: config.ConnectorMoRIIO}
	r := startRegistered(t, registeredConfig{as: as})
	other := startRegisteredWithout(t, as)
	for _, want := range []string{"one", "two"} {
		r.over(t, saying(want), want)
		if a, rec := other.send(t, "", saying(want)); a.status != http.StatusServiceUnavailable || a.code != "decode_unavailable" || len(rec.Legs) > 0 {
			t.Errorf("the other replica: got status %d, code %q", a.status, a.code)
		}
	}
	if status, _ := askBare(t, other.client, http.MethodGet, other.base+"/readyz"); status == http.StatusOK {
		t.Error("a replica without engines says that it is ready")
	}
	r.settled(t, pins{}, 0)
}

// startRegisteredWithout runs the program while nobody registers.
func startRegisteredWithout(t *testing.T, as speaking) *registered {
	t.Helper()
	r := &registered{operated: &operated{}, as: as, address: "127.0.0.1:0"}
	r.rig = &rig{client: &http.Client{Transport: &http.Transport{}}, turns: newTurnLog()}
	r.again(t)
	return r
}

// again runs the program anew, with instances registering where they did before.
func (r *registered) again(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.address = listener.Addr().String()
	cfg, err := configtest.Load(t, strings.Join(slices.Concat(testrig.Patient(), steady, []string{"--connector", r.as.connector, "--zmq-discovery-listen", r.address}), " "))
	if err != nil {
		t.Fatal(err)
	}
	r.serve(t, cfg, rigConfig{empty: true, wire: func(_ config.Config, p *app.Proxy) {
		r.proxy, p.Sources.Announced.Listener, p.Sources.Announced.TTL = p, listener, announcedTTL
	}})
}

// pinger announces the engines of its arguments, an address and a type each, as libzmq's DEALER does, each from a line on its input on.
const pinger = `
import sys, threading, time, zmq, msgpack
context = zmq.Context()
def ping(kind, http, address):
    sock = context.socket(zmq.DEALER)
    sock.setsockopt_string(zmq.IDENTITY, address)
    sock.connect("tcp://" + sys.argv[1])
    while True:
        sock.send(msgpack.dumps({"type": kind, "http_address": http, "zmq_address": address, "dp_size": 1, "tp_size": 1, "transfer_mode": "WRITE"}))
        time.sleep(0.1)
for line in sys.stdin:
    threading.Thread(target=ping, args=line.split(), daemon=True).start()
    print("pings")
`

// Engines with libzmq are found, and found again when they are restarted, and when the program is.
func TestRegistered_EnginesWithLibzmq(t *testing.T) {
	t.Parallel()
	as := speaking{connector: config.ConnectorMoRIIO}
	engines := &registered{operated: &operated{}, as: as}
	quiet := registeredConfig{as: as, quiet: true}
	prefill, decode := engines.instance(t, config.RolePrefill, quiet), engines.instance(t, config.RoleDecode, quiet)
	r := startRegisteredWithout(t, as)
	r.prefill, r.decode = []*vllmsim.Instance{prefill}, []*vllmsim.Instance{decode}
	announce := func(i *vllmsim.Instance, kind string) *zmqtest.Process {
		python := zmqtest.Start(t, pinger, r.address)
		python.Say(kind + " " + authority(i) + " " + i.Addresses().KV)
		python.Want("pings")
		return python
	}
	ofPrefill := announce(prefill, "P")
	ofDecode := announce(decode, "D")
	r.await(t, r.prefill, r.decode)
	r.over(t, saying("one"), "one")

	ofDecode.Kill()
	r.await(t, r.prefill, nil)
	_ = announce(decode, "D")
	r.await(t, r.prefill, r.decode)
	r.over(t, saying("two"), "two")

	r.stop() // and another one at the same address: the engines connect anew by themselves
	r.again(t)
	r.await(t, r.prefill, r.decode)
	r.over(t, saying("three"), "three")
	ofPrefill.Kill()
	r.settled(t, pins{}, 0)
}
