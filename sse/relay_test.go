package sse

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// script is a reader that runs one step per read.
func script(steps ...func() (string, error)) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		step := steps[0]
		steps = steps[1:]
		s, err := step()
		return copy(p, s), err
	})
}

func text(s string, err error) func() (string, error) {
	return func() (string, error) { return s, err }
}

func TestRelay_EventIsWrittenAndFlushedBeforeTheNextRead(t *testing.T) {
	var log []string
	write := func(p []byte) (int, error) { log = append(log, "write "+string(p)); return len(p), nil }
	flush := func() error { log = append(log, "flush"); return nil }
	read := func(s string, err error) func() (string, error) {
		return func() (string, error) { log = append(log, "read"); return s, err }
	}
	r := New(writeFunc(write), flush, Config{Observe: func(e Event) Verdict {
		log = append(log, "observe "+string(e.Data))
		return verdictOf(e.Data)
	}})
	err := r.Run(script(read("data:a\n\n", nil), read("data:b\n\ndata:c\n\nda", nil), read("ta:d\r\n\r", nil), read("\n", nil),
		read("", nil), read("data:drop\n\n", nil), read("data:hold\n\n", nil), read("data:e", nil), read("\n\n", io.EOF)))
	want := []string{
		"read", "observe a", "write data:a\n\n", "flush",
		"read", "observe b", "observe c", "write data:b\n\ndata:c\n\n", "flush",
		"read", "observe d", "write data:d\r\n\r", "flush",
		"read", "write \n", "flush",
		"read", "read", "observe drop", "read", "observe hold", "read",
		"read", "observe e", "write data:hold\n\ndata:e\n\n", "flush",
	}
	if err != nil || !slices.Equal(log, want) {
		t.Errorf("Run: error %v, steps\n got %q\nwant %q", err, log, want)
	}
}

func TestRelay_BeginIsCalledWithTheFirstByteOfEachEventThatIsSplit(t *testing.T) {
	var log []string
	read := func(s string) func() (string, error) {
		return func() (string, error) { log = append(log, "read "+s); return s, nil }
	}
	r := New(io.Discard, nil, Config{
		MaxEvent: 20,
		Begin:    func() { log = append(log, "begin") },
		Observe: func(e Event) Verdict {
			log = append(log, fmt.Sprintf("observe %s %t", e.Data, e.Split))
			return Forward
		},
	})
	err := r.Run(script(read("\xef\xbb"), read("\xbfd"), read("ata:a\n"), read("\ndata:b\n\ndata:c\n\nd"), read("ata:d\r\n\r"), read("\n"),
		read(": ping\n\n"), read("data:"+strings.Repeat("x", 30)), read("x"), read("\n\n"), read("data:e\n\n"), text("", io.EOF)))
	want := []string{
		"read \xef\xbb", "read \xbfd", "begin", "read ata:a\n",
		"read \ndata:b\n\ndata:c\n\nd", "observe a true", "observe b false", "observe c false", "begin",
		"read ata:d\r\n\r", "observe d true", "read \n", "read : ping\n\n",
		"read data:" + strings.Repeat("x", 30), "read x", "read \n\n", "read data:e\n\n", "observe e false",
	}
	if err != nil || !slices.Equal(log, want) {
		t.Errorf("Run: error %v, steps\n got %q\nwant %q", err, log, want)
	}
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

// What of the stream is relayed then is a part of TestRelay_Verdicts.
func TestRelay_UpstreamDies(t *testing.T) {
	idle := readFunc(func([]byte) (int, error) { return 0, nil })
	for cause, src := range map[error]io.Reader{
		errBroken: iotest.ErrReader(errBroken), io.ErrUnexpectedEOF: iotest.ErrReader(io.ErrUnexpectedEOF),
		io.EOF: iotest.ErrReader(fmt.Errorf("framing: %w", io.EOF)), io.ErrNoProgress: idle,
	} {
		out, _, err := run(io.MultiReader(strings.NewReader("data:a\n\nx"), src), Config{})
		var read *ReadError
		if !errors.As(err, &read) || !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "read stream: ") || out != "data:a\n\n" {
			t.Errorf("Run: got %v of %q, want a ReadError of %v", err, out, cause)
		}
	}
}

func TestRelay_EmptyReadsBetweenBytesAreNoError(t *testing.T) {
	empty := 0
	src := readFunc(func(p []byte) (int, error) {
		empty++
		switch {
		case empty > 500:
			return 0, io.EOF
		case empty%(maxEmptyReads) == 0:
			return copy(p, "data:a\n\n"), nil
		}
		return 0, nil
	})
	if err := New(io.Discard, nil, Config{}).Run(src); err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}

func TestRelay_ClientGoes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		write func([]byte) (int, error)
		flush func() error
		cause error
		bytes int64
	}{
		{"while writing", func([]byte) (int, error) { return 3, errBroken }, nil, errBroken, 3},
		{"short write", func([]byte) (int, error) { return 3, nil }, nil, io.ErrShortWrite, 3},
		{"while flushing", func(p []byte) (int, error) { return len(p), nil }, func() error { return errBroken }, errBroken, 8},
	} {
		observed := 0
		r := New(writeFunc(tc.write), tc.flush, Config{Observe: func(Event) Verdict { observed++; return Forward }})
		err := r.Run(io.MultiReader(strings.NewReader("data:a\n\n"), strings.NewReader("data:b\n\n")))
		var write *WriteError
		if !errors.As(err, &write) || !errors.Is(err, tc.cause) || !strings.HasPrefix(err.Error(), "write stream: ") {
			t.Errorf("%s: got %v, want a WriteError of %v", tc.name, err, tc.cause)
		}
		if observed != 1 || r.Stats().Bytes != tc.bytes {
			t.Errorf("%s: observed %d events, Stats.Bytes %d; want 1 and %d", tc.name, observed, r.Stats().Bytes, tc.bytes)
		}
	}
}

func TestRelay_StatsDuringObserveSayWhatTheClientHas(t *testing.T) {
	var seen []int64
	var r *Relay
	r = New(io.Discard, nil, Config{Observe: func(Event) Verdict {
		seen = append(seen, r.Stats().Bytes)
		return Forward
	}})
	must(t, r.Run(script(text("data:a\n\ndata:b\n\n", nil), text("data:c\n\n", io.EOF))))
	if want := []int64{0, 0, 16}; !slices.Equal(seen, want) {
		t.Errorf("Stats.Bytes at each event: got %d, want %d", seen, want)
	}
}

func TestAppendError_WritesOneEvent(t *testing.T) {
	const in, want = `{"error":{"code":500}}`, "xdata: {\"error\":{\"code\":500}}\n\n"
	if got := string(AppendError([]byte("x"), []byte(in))); got != want {
		t.Errorf("AppendError(%q) = %q, want %q", in, got, want)
	}
}
