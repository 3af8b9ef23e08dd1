package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"carryover/sse"
	"carryover/upstream/body"
)

// relayed are the events of a stream as the relay for clients sees them.
func relayed(t *testing.T, stream []byte) (events []string) {
	t.Helper()
	relay := sse.New(io.Discard, nil, sse.Config{MaxEvent: len(stream) + 1, Observe: func(e sse.Event) sse.Verdict {
		if len(e.Data) > 0 {
			events = append(events, string(e.Data))
		}
		return sse.Forward
	}})
	if err := relay.Run(bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	return events
}

// readEvents reads a stream to its end, with what it has ended with.
func readEvents(r io.Reader, most int) (events []string, err error) {
	reader := eventReader{from: r, most: most}
	for {
		data, err := reader.next()
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
}

// streams are streams of each shape, which corpus files of FuzzFirstChoice have too.
var streams = []string{
	"", "\n", "data: a\n\n", "data:a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r", "data: a\n\r\ndata: b\r\n\n", "data: a\r\ndata: b\n\n",
	"data: a\ndata: b\ndata:\ndata:  c\n\n", "data\ndata\n\n", "data\n\n", "data:\n\n", ": ping\n\n:\n\ndata: a\n\n", "event: error\ndata: a\nid: 7\nretry: 1\n\n", "data : a\n\n", "Data: a\n\n",
	"\xef\xbb\xbfdata: a\n\n", "\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", "\ufeff\n\ndata: a\n\n", "\n\xef\xbb\xbfdata: a\n\n", "data: a", "data: a\n", "data: a\n\ndata: b\n", "dataa: x\n\n", "d\n\n", "data: \x00\xff\n\n", firstEvent,
}

func TestEvents_AreThoseOfTheRelayHoweverTheyAreSplit(t *testing.T) {
	for _, stream := range streams {
		want := relayed(t, []byte(stream))
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
			"with its end": iotest.DataErrReader(strings.NewReader(stream)),
		} {
			if got, err := readEvents(r, 1<<20); !slices.Equal(got, want) || !errors.Is(err, io.EOF) {
				t.Errorf("%q, %s: got %q, %v, want %q", stream, name, got, err, want)
			}
		}
		for at := range len(stream) {
			if got, _ := readEvents(io.MultiReader(strings.NewReader(stream[:at]), strings.NewReader(stream[at:])), 1<<20); !slices.Equal(got, want) {
				t.Errorf("%q, split at %d: got %q, want %q", stream, at, got, want)
			}
		}
	}
}

func TestEvents_AreReadAsTheyCome(t *testing.T) {
	r, w := io.Pipe()
	defer func() { _ = r.Close() }()
	reader := eventReader{from: r, most: 1 << 10}
	for _, event := range []string{"data: a\n\n", "data: a\r\r", "\ndata: a\r\n\r"} { // the LF of a CRLF may come later, or never
		wrote := make(chan error, 1) // the reader does not wait for the writer
		go func() {
			_, err := io.WriteString(w, event)
			wrote <- err
		}()
		if data, err := reader.next(); string(data) != "a" || err != nil {
			t.Fatalf("%q: got %q, %v", event, data, err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
}

func TestEvents_AreBounded(t *testing.T) {
	const stream = ": ping\n\ndata: a\n\ndata: b\n\n"
	for most := range len(stream) + 2 {
		want, wantErr := relayed(t, []byte(stream[:min(most, len(stream))])), ErrAnswerTooLarge
		if most > len(stream) {
			wantErr = io.EOF
		}
		for _, r := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			if got, err := readEvents(r, most); !slices.Equal(got, want) || !errors.Is(err, wantErr) {
				t.Errorf("at most %d bytes: got %q, %v, want %q, %v", most, got, err, want, wantErr)
			}
		}
	}
}

func TestEvents_EndWithTheirSource(t *testing.T) {
	broken := errors.New("broken")
	if got, err := readEvents(iotest.DataErrReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken))), 1<<10); len(got) != 1 || !errors.Is(err, broken) {
		t.Errorf("got %q, %v, want one event and the error", got, err)
	}
	if _, err := readEvents(silent{}, 1<<10); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v of a source that says nothing for ever", err)
	}
}

// silent says nothing, and does not wait either.
type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

// firstInSteps finds the first choice among events that have been read.
func firstInSteps(l Leg, events []string) (answer PrefillAnswer, failed string, kind Kind) {
	for _, data := range events {
		if data == "[DONE]" {
			return PrefillAnswer{}, "", Garbage
		}
		answer, failed, ok := readInSteps(l, []byte(data))
		switch {
		case !ok:
			return PrefillAnswer{}, "", Garbage
		case failed != "":
			return PrefillAnswer{}, failed, Status
		}
		var all map[string]json.RawMessage
		var choices []json.RawMessage
		if json.Unmarshal([]byte(data), &all) == nil && json.Unmarshal(all["choices"], &choices) == nil && len(choices) > 0 {
			return answer, "", 0
		}
	}
	return PrefillAnswer{}, "", Garbage
}

// FuzzFirstChoice holds the first event of any stream, in reads of any size, to what the relay sees and what is read in steps.
func FuzzFirstChoice(f *testing.F) {
	f.Fuzz(func(t *testing.T, size uint8, stream []byte) {
		events := relayed(t, stream)
		if got, err := readEvents(sized{bytes.NewReader(stream), int(size)}, len(stream)+1); !slices.Equal(got, events) || !errors.Is(err, io.EOF) {
			t.Fatalf("%q: got %q, %v, want %q", stream, got, err, events)
		}
		l := Leg{Instance: &Instance{Name: "p"}, API: body.Text}
		want, failed, kind := firstInSteps(l, events)
		got, err := l.firstChoice(sized{bytes.NewReader(stream), int(size)})
		var fault *LegError
		switch {
		case kind == 0 && err != nil || kind != 0 && (!errors.As(err, &fault) || fault.Kind != kind):
			t.Fatalf("%q: got %+v, %v, want kind %v", stream, got, err, kind)
		case kind == Status && (fault.Status != http.StatusInternalServerError || fault.Message+"!" != failed):
			t.Fatalf("%q: got %+v, want the fault %q", stream, fault, failed)
		case !reflect.DeepEqual(got, want):
			t.Fatalf("%q:\n got %+v\nwant %+v", stream, got, want)
		case kind == 0 && !json.Valid(got.Body):
			t.Fatalf("%q: got %q, which is no JSON", stream, got.Body)
		}
	})
}

// sized reads at most so many bytes at once, and one more.
type sized struct {
	io.Reader
	size int
}

func (s sized) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(s.size+1, len(p))]) }
