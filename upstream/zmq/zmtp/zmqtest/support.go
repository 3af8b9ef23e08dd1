package zmqtest

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// ErrEnds is the cause with which Run ends.
var ErrEnds = errors.New("the test ends")

// Run runs until the test or the returned function ends it, and checks that it returns the cause then.
func Run(tb testing.TB, f func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel(ErrEnds)
		if err := <-done; !errors.Is(err, ErrEnds) {
			tb.Errorf("got %v, want the cause of its context", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// Eventually waits until holds says yes.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline, ticker := time.NewTimer(Limit), time.NewTicker(time.Millisecond)
	defer deadline.Stop()
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			tb.Fatalf("%s: not within %v", what, Limit)
		}
	}
}

// Must ends the test at an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Listen returns a listener on a free loopback port, and its endpoint.
func Listen(tb testing.TB) (net.Listener, string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(tb, err)
	return l, "tcp://" + l.Addr().String()
}

// Free returns an endpoint that nobody listens on.
func Free(tb testing.TB) string {
	tb.Helper()
	l, endpoint := Listen(tb)
	Must(tb, l.Close())
	return endpoint
}

// Pack translates JSON to MessagePack. A text that begins with 0x becomes bytes.
func Pack(text string) []byte {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return pack(d)
}

func pack(d *json.Decoder) []byte {
	token, err := d.Token()
	if err != nil {
		panic(err) // a broken fixture
	}
	switch v := token.(type) {
	case json.Delim:
		var inside []byte
		n := uint32(0)
		for ; d.More(); n++ {
			inside = append(inside, pack(d)...)
		}
		_, _ = d.Token() // the end
		if v == '{' {
			return append(msgp.AppendMapHeader(nil, n/2), inside...)
		}
		return append(msgp.AppendArrayHeader(nil, n), inside...)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return msgp.AppendInt64(nil, n)
		}
		if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return msgp.AppendUint64(nil, n)
		}
		f, _ := v.Float64()
		return msgp.AppendFloat64(nil, f)
	case string:
		if digits, is := strings.CutPrefix(v, "0x"); is {
			raw, _ := hex.DecodeString(digits)
			return msgp.AppendBytes(nil, raw)
		}
		return msgp.AppendString(nil, v)
	}
	return msgp.AppendNil(nil)
}
