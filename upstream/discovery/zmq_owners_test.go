package discovery

import (
	"testing"
	"time"

	"carryover/upstream/zmq/zmtp"
)

// by is a message of a peer.
func by(peer string, message zmtp.Message) zmtp.Message {
	message.Peer = peer
	return message
}

func TestRegistrations_AnotherPeerChangesNothing(t *testing.T) {
	clocked(t, func(t *testing.T, r *registrations, logged func(part string) int, listed func() string) {
		const long = "host:10.0.0.2,handshake:6301,notify:61005"
		r.take(by("10.0.0.1:50", said("P", "10.0.0.1:1", "10.0.0.1:2")))
		r.take(by("10.0.0.2:50", said("D", "10.0.0.2:1", long)))
		want := listed()
		taken := []zmtp.Message{
			said("D", "10.0.0.1:1", "10.0.0.1:2"),                                                                  // a role
			said("P", "10.0.0.1:1", "10.0.0.9:2"),                                                                  // a KV address
			said("P", "10.0.0.9:1", "10.0.0.1:2"),                                                                  // that of another engine
			said("P", "10.0.0.9:1", long),                                                                          //
			said("P", "10.0.0.9:1", "host:10.0.0.2,handshake:7,notify:61005"),                                      // a part of it
			said("P", "10.0.0.9:1", "host:10.0.0.2,handshake:61005,notify:7"),                                      //
			{Frames: [][]byte{pack("type", "D", "http_address", "10.0.0.2:1", "zmq_address", long, "tp_size", 8)}}, // how KV lies there
		}
		for n, message := range taken {
			r.take(by("10.0.0.9:50", message))
			if got := listed(); got != want || r.refused.taken.Load() != uint64(n+1) {
				t.Fatalf("announcement %d: got %q, %d refused; want %q and %d", n, got, r.refused.taken.Load(), want, n+1)
			}
		}
		if len(r.heard) != 2 || logged("an engine may not register") != 1 {
			t.Errorf("%d are heard of, %d lines; want 2 and one", len(r.heard), logged("an engine may not register"))
		}
		r.take(by("10.0.0.1:50", said("D", "10.0.0.1:1", "10.0.0.1:3"))) // of its own an engine may say another thing
		if got := listed(); got == want {
			t.Errorf("got %q, want what the engine says now", got)
		}
		<-time.After(time.Minute)
		r.take(by("10.0.0.1:50", said("D", "10.0.0.1:1", "10.0.0.1:3")))
		r.take(by("10.0.0.9:50", taken[1]))
		if n := logged("an engine may not register"); n != 2 {
			t.Errorf("%d lines, want another one after a minute", n)
		}
	})
}

// What one peer says as another one does keeps the instance, and becomes its own only when the other has gone silent.
func TestRegistrations_AnAddressIsHandedDown(t *testing.T) {
	clocked(t, func(t *testing.T, r *registrations, _ func(part string) int, listed func() string) {
		first, second := said("P", "10.0.0.1:1", "10.0.0.1:2"), said("P", "10.0.0.1:1", "10.0.0.1:9")
		r.take(by("a", first))
		for range 3 { // an engine that has connected anew, within the time that it may be silent
			<-time.After(3 * time.Second)
			r.take(by("b", first))
			r.take(by("c", second))
			if got := listed(); got != "prefill 10.0.0.1:1 10.0.0.1:2" {
				t.Fatalf("got %q, want what is said by the first", got)
			}
		}
		<-time.After(3 * time.Second) // twelve seconds after the first
		r.take(by("b", first))
		r.take(by("c", second))
		r.take(by("a", second))
		if got := listed(); got != "prefill 10.0.0.1:1 10.0.0.1:2" {
			t.Errorf("got %q, want what the heir says", got)
		}
		r.take(by("b", second))
		if got := listed(); got != "prefill 10.0.0.1:1 10.0.0.1:9" {
			t.Errorf("got %q, want what the heir has changed", got)
		}
		<-time.After(11 * time.Second)
		r.take(by("c", first))
		if got := listed(); got != "prefill 10.0.0.1:1 10.0.0.1:2" {
			t.Errorf("got %q, want what is said after a silence", got)
		}
	})
}

// A time in which this process stood still makes no address free.
func TestRegistrations_StandingStillTakesNothingAway(t *testing.T) {
	r := newRegistrations(&ZMQ{}, &refusals{})
	r.take(by("a", said("P", "10.0.0.1:1", "10.0.0.1:2")))
	now := time.Now()
	r.sweep(now.Add(time.Minute), time.Minute)
	instance, err := parseAnnouncement(said("D", "10.0.0.1:1", "10.0.0.1:2").Frames)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.enter(instance, "b", now.Add(time.Minute)); err == nil {
		t.Error("another peer got the address, though nobody could be heard for a minute")
	}
}

func TestRegistrations_OnlyWhereItIsPermitted(t *testing.T) {
	var allow []Pattern
	for _, text := range []string{"10.0.0.0/24:8000-8100", "*.engines.example:80"} {
		pattern, err := ParsePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		allow = append(allow, pattern)
	}
	for _, row := range []struct {
		http, kv string
		ok       bool
	}{
		{"10.0.0.1:8000", "10.0.0.1:21001", true},
		{"10.0.0.1:8000", "host:10.0.0.2,handshake:1,notify:2", true},
		{"p.engines.example:80", "p.engines.example:1", true},
		{"10.0.0.1:8000", "p.engines.example:1", true},
		{"10.0.0.1:9000", "10.0.0.1:21001", false},
		{"10.0.1.1:8000", "10.0.0.1:21001", false},
		{"10.0.0.1:8000", "10.0.1.1:21001", false},
		{"10.0.0.1:8000", "host:10.0.1.1,handshake:1,notify:2", false},
		{"engines.example:80", "10.0.0.1:1", false},
		{"[fd00::1]:8000", "10.0.0.1:1", false},
	} {
		r := newRegistrations(&ZMQ{Allow: allow}, &refusals{})
		r.take(said("P", row.http, row.kv))
		if got := len(r.list.now()) == 1; got != row.ok || (r.refused.notAllowed.Load() == 1) == row.ok {
			t.Errorf("%s, KV %s: taken %t, %d refused; want %t", row.http, row.kv, got, r.refused.notAllowed.Load(), row.ok)
		}
	}
}

func TestRegistrations_TheProgramItselfIsNoEngine(t *testing.T) {
	r := newRegistrations(&ZMQ{Own: func(authority string) bool { return authority == "10.0.0.9:8000" }}, &refusals{})
	r.take(said("P", "10.0.0.9:8000", "10.0.0.9:1"))
	r.take(said("P", "10.0.0.9:8001", "10.0.0.9:1"))
	if got := r.list.now(); len(got) != 1 || got[0].Name != "10.0.0.9:8001" || r.refused.notAllowed.Load() != 1 {
		t.Errorf("got %v, want the engine beside it alone", got)
	}
}
