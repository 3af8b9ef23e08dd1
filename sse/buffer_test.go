package sse

import (
	"io"
	"strings"
	"testing"
)

func TestRelay_BufferFollowsTheSizeOfEvents(t *testing.T) {
	small := strings.Repeat("data:small\n\n", calmReads)
	medium := "data:" + strings.Repeat("m", 20<<10) + "\n\n"
	big := "data:" + strings.Repeat("b", 200<<10) + "\n\n"
	var sizes []int
	var r *Relay
	// One event per read, except where an event is larger than the room that is offered.
	source := func(parts []string) io.Reader {
		return readFunc(func(p []byte) (int, error) {
			for len(parts) > 0 && parts[0] == "" {
				parts = parts[1:]
				sizes = append(sizes, len(r.buf.b))
			}
			if len(parts) == 0 {
				return 0, io.EOF
			}
			if len(p) < minRead {
				t.Fatalf("room for a read: got %d, want at least %d", len(p), minRead)
			}
			n := copy(p[:min(len(p), 1000)], parts[0])
			parts[0] = parts[0][n:]
			return n, nil
		})
	}
	fills := "data:" + strings.Repeat("f", firstBuffer) + "\n\n"
	tiny := strings.Repeat("data:1\n\n|", 5)
	for name, tc := range map[string]struct {
		parts string // with a stroke behind each
		want  map[int]int
	}{
		"small events":                  {"data:x\n\n|" + small + "|" + small + "|", map[int]int{1: firstBuffer, 2: firstBuffer}},
		"one that is larger":            {strings.Repeat(small+"|", youngReads) + fills + "|" + small + "|" + small + "|", map[int]int{youngReads - 1: firstBuffer, youngReads: smallBuffer, youngReads + 2: smallBuffer}},
		"a first one that is larger":    {fills + "|" + small + "|", map[int]int{0: firstBuffer, 1: firstBuffer}},
		"one of 20 KiB, and small ones": {medium + "|" + tiny, map[int]int{0: 8 * smallBuffer, 5: smallBuffer}},
		"one of 200 KiB":                {big + "|" + tiny, map[int]int{0: firstBuffer}},
	} {
		sizes = nil
		var out strings.Builder
		parts := strings.Split(strings.TrimSuffix(tc.parts, "|"), "|")
		want := strings.Join(parts, "")
		r = New(&out, nil, Config{})
		if err := r.Run(source(parts)); err != nil || out.String() != want {
			t.Fatalf("%s: %d bytes, error %v, %+v; want %d and nil", name, out.Len(), err, r.Stats(), len(want))
		}
		for i, size := range tc.want {
			if sizes[i] != size {
				t.Errorf("%s: buffer after event %d: got %d, want %d", name, i, sizes[i], size)
			}
		}
	}
}

func TestRelay_OversizeEventNeedsConstantMemory(t *testing.T) {
	const size = 100 << 20
	line := []byte(strings.Repeat("y", 64<<10))
	sent, peak := 0, 0
	r := New(io.Discard, nil, Config{Observe: func(e Event) Verdict {
		t.Errorf("observed an event of %d bytes", len(e.Data))
		return Forward
	}})
	err := r.Run(readFunc(func(p []byte) (int, error) {
		peak = max(peak, len(r.buf.b))
		if sent >= size {
			return 0, io.EOF
		}
		n := copy(p, line)
		sent += n
		return n, nil
	}))
	if stats := r.Stats(); err != nil || stats.Bytes != int64(sent) || stats.Oversize != 1 || !stats.MidEvent {
		t.Errorf("Run: error %v, stats %+v; want nil, %d bytes, one oversize event, mid-event", err, stats, sent)
	}
	if limit := 2 * DefaultMaxEvent; peak > limit {
		t.Errorf("buffer grew to %d bytes, want at most %d", peak, limit)
	}
}

func TestRelay_DroppedEventsLeaveNoGap(t *testing.T) {
	events := 0
	var r *Relay
	r = New(io.Discard, nil, Config{Observe: func(Event) Verdict {
		if events++; len(r.buf.b) > smallBuffer {
			t.Fatalf("buffer grew to %d bytes at event %d, want %d", len(r.buf.b), events, smallBuffer)
		}
		return Drop
	}})
	if err := r.Run(strings.NewReader(strings.Repeat("data: dropped\n\n", 10000))); err != nil || events != 10000 {
		t.Errorf("Run: %d events, error %v; want 10000 and nil", events, err)
	}
}

func TestRelay_CapturesParamsUpToTheBound(t *testing.T) {
	for _, size := range []int{100 << 10, 1 << 20, DefaultMaxEvent + 1<<10} {
		value := `{"remote_block_ids":[[1` + strings.Repeat(",123456", size/7) + `]]}`
		stream := `data: {"choices":[1],"kv_transfer_params":` + value + "}\n\ndata: [DONE]\n\n"
		want, wantMember := "data: {\"choices\":[1]}\n\ndata: [DONE]\n\n", value
		if size > DefaultMaxEvent {
			want, wantMember = stream, ""
		}
		for name, src := range readings(stream, nil) {
			if name == "byte by byte" {
				continue
			}
			member := ""
			out, r, err := run(src, Config{Strip: params, Observe: func(e Event) Verdict {
				member += string(e.Member)
				return Forward
			}})
			if err != nil || out != want || member != wantMember || r.data.joined != nil || cap(r.data.lines) > smallBuffer {
				t.Errorf("%d bytes, %s: %v, relayed %d, captured %d bytes; want %d and %d, and scratch space is given back", size, name, err, len(out), len(member), len(want), len(wantMember))
			}
		}
	}
}

func TestRelay_ScratchSpaceOfBigEventsIsGivenBack(t *testing.T) {
	stream := strings.Repeat("data: x\n", 10000) + "\ndata: [DONE]\n\n"
	r := New(io.Discard, nil, Config{})
	must(t, r.Run(strings.NewReader(stream)))
	if cap(r.data.joined) > smallBuffer || cap(r.data.lines) > smallBuffer {
		t.Errorf("scratch space: got %d bytes and %d lines, want at most %d", cap(r.data.joined), cap(r.data.lines), smallBuffer)
	}
}

// Streams that share memory must not see each other, whatever they leave behind.
func TestMemory_StreamsThatFollowEachOtherSeeNothingOfEachOther(t *testing.T) {
	var memory Memory
	for i, events := range []string{
		strings.Repeat("data:"+strings.Repeat("a", 90)+"\n\n", 60),
		"data:b\n\n",
		strings.Repeat("data:"+strings.Repeat("c", 3000)+"\n\n", 3),
		"data:" + strings.Repeat("d", 100<<10) + "\n\n",
		"data:e\n\ndata:unfinished",
		"",
	} {
		out, r, err := run(strings.NewReader(events), Config{Memory: &memory})
		if err != nil || out != events {
			t.Errorf("stream %d: got %d bytes and %v, want the %d that came in", i, len(out), err, len(events))
		}
		if r.buf.b != nil {
			t.Errorf("stream %d has an array of %d bytes after its end", i, len(r.buf.b))
		}
	}
}
