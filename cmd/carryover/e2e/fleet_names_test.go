package e2e

import (
	"slices"
	"strconv"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/dnstest"
	"carryover/upstream/vllmsim"
)

// service is the SRV record of an instance behind a name of its own.
func service(t *testing.T, name string, instance *vllmsim.Instance) dnsmessage.ResourceBody {
	t.Helper()
	port, err := strconv.ParseUint(portOf(t, instance), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	target, err := dnsmessage.NewName(name + ".")
	if err != nil {
		t.Fatal(err)
	}
	return &dnsmessage.SRVResource{Priority: 10, Weight: 50, Port: uint16(port), Target: target}
}

func TestFleet_AddressOfANameMovesUnderAStream(t *testing.T) {
	t.Parallel()
	decode, port := startAlike(t, 3)
	prefill := []*vllmsim.Instance{testrig.StartInstance(t, vllmsim.DefaultConfig(), ""), testrig.StartInstance(t, vllmsim.DefaultConfig(), "")}
	names.Set("decode.test", dnstest.At("127.0.0.2"), dnstest.At("127.0.0.3"))
	names.Set("p0.test", dnstest.At("127.0.0.1"))
	names.Set("p1.test", dnstest.At("127.0.0.1"))
	names.Set("_vllm._tcp.prefill.test", service(t, "p0.test", prefill[0]))
	g := startChanging(t, rigConfig{flags: []string{
		"--decode-dns", "http://decode.test:" + port, "--prefill-dns", "srv://_vllm._tcp.prefill.test",
	}})
	g.prefill, g.decode = prefill, decode
	g.await(t, decode[:2]...)

	a, b := g.thread("a"), g.thread("b")
	first := a.turn(t, "first_turn").Leg(upstream.RoleDecode).Instance
	moves, stays := decode[0], decode[1]
	if first == authority(stays) {
		moves, stays = stays, moves
	}
	a.turn(t, hit, moves)
	under := a.begin(t, moves)
	b.turn(t, "first_turn", stays)
	host := map[*vllmsim.Instance]string{decode[0]: "127.0.0.2", decode[1]: "127.0.0.3"}
	names.Set("decode.test", dnstest.At("127.0.0.4"), dnstest.At(host[stays])) // an address moves
	g.await(t, stays, decode[2])
	if !g.drains(moves) {
		t.Error("the instance whose address has gone, with a stream, is not draining")
	}
	names.Set("_vllm._tcp.prefill.test", service(t, "p1.test", prefill[1]))
	want := []string{"p1.test:" + portOf(t, prefill[1])}
	if !within(foundWithin, func() bool { return slices.Equal(g.names(upstream.RolePrefill), want) }) {
		t.Fatalf("prefill instances %v, want %v", g.names(upstream.RolePrefill), want)
	}
	b.turn(t, hit, stays)
	under.end(t, hit, moves)
	g.awaitDrained(t)
	gone := a.turn(t, "instance_gone").Leg(upstream.RoleDecode).Instance
	if gone == authority(moves) {
		t.Error("a turn went to an address that the name has no more")
	}
	a.turn(t, hit)
	g.verify(t, pins{})
}
