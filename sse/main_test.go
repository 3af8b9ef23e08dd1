package sse

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// run relays all of src.
func run(src io.Reader, cfg Config) (out string, r *Relay, err error) {
	var to strings.Builder
	r = New(&to, nil, cfg)
	err = r.Run(src)
	return to.String(), r, err
}

// readings are ways in which an input may arrive.
func readings(input string, end error) map[string]io.Reader {
	whole := func() io.Reader {
		if end == nil {
			return strings.NewReader(input)
		}
		return io.MultiReader(strings.NewReader(input), iotest.ErrReader(end))
	}
	return map[string]io.Reader{
		"one read": whole(), "halves": iotest.HalfReader(whole()), "byte by byte": iotest.OneByteReader(whole()), "with its end": iotest.DataErrReader(whole()),
	}
}
