package porttest_test

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"

	"carryover/porttest"
)

// A reserved port refuses, can be listened at again and again, and is nobody else's.
func TestReserve(t *testing.T) {
	address := "127.0.0.1:" + strconv.Itoa(porttest.Reserve(t))
	for range 2 {
		if conn, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("got %v, %v, want that the connection is refused", conn, err)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = listener.Close()
	}
	for range 1000 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if listener.Addr().String() == address {
			t.Fatal("another listener got the port")
		}
	}
}
