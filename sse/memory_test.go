package sse

import (
	"bytes"
	"strings"
	"testing"
)

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
		var out bytes.Buffer
		r := New(&out, nil, Config{Memory: &memory})
		if err := r.Run(strings.NewReader(events)); err != nil || out.String() != events {
			t.Errorf("stream %d: got %d bytes and %v, want the %d that came in", i, out.Len(), err, len(events))
		}
		if r.buf.b != nil {
			t.Errorf("stream %d has an array of %d bytes after its end", i, len(r.buf.b))
		}
	}
}

func TestMemory_KeepsArraysOfTwoSizes(t *testing.T) {
	var memory Memory
	for _, size := range []int{firstBuffer, smallBuffer, 2 * smallBuffer, 0} {
		array := make([]byte, size)
		memory.giveBack(array)
		if got := memory.take(size); len(got) != size {
			t.Errorf("take(%d) has %d bytes", size, len(got))
		}
	}
	if kept := memory.first.Get() == nil && memory.small.Get() == nil; !kept {
		t.Error("an array was given out and kept")
	}
	(*Memory)(nil).giveBack(make([]byte, firstBuffer))
	if got := (*Memory)(nil).take(firstBuffer); len(got) != firstBuffer {
		t.Errorf("no memory: %d bytes", len(got))
	}
}
