package app

import (
	"net"
	"testing"
)

func TestOwnPorts_AreWhereAConnectionWouldComeBack(t *testing.T) {
	at := func(address string) *ownPorts {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		must(t, err)
		own := &ownPorts{}
		own.add(tcp)
		own.add(&net.UnixAddr{Name: "x"})
		return own
	}
	for _, row := range []struct {
		listener, authority string
		want                bool
	}{
		{"127.0.0.1:8000", "127.0.0.1:8000", true}, {"127.0.0.1:8000", "[::ffff:127.0.0.1]:8000", true}, {"127.0.0.1:8000", "localhost:8000", true},
		{"127.0.0.1:8000", "0.0.0.0:8000", true}, {"127.0.0.1:8000", "127.0.0.2:8000", true}, {"127.0.0.1:8000", "127.0.0.1:8001", false},
		{"0.0.0.0:8000", "127.0.0.2:8000", true}, {"[::]:8000", "127.0.0.1:8000", true}, {"[::]:8000", "[::1]:8000", true},
		{"0.0.0.0:8000", "203.0.113.9:8000", false}, {"10.0.0.1:8000", "0.0.0.0:8000", true},
		{"127.0.0.1:8000", "name.invalid:8000", false}, {"127.0.0.1:8000", "localhost", false}, {"127.0.0.1:8000", "127.0.0.1:http", false}, {"127.0.0.1:8000", "8000", false},
	} {
		if got := at(row.listener).has(t.Context(), row.authority); got != row.want {
			t.Errorf("%s of a program that listens at %s: %t, want %t", row.authority, row.listener, got, row.want)
		}
	}
}
