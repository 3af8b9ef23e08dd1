package outline_test

import (
	"fmt"
	"sync"
	"testing"

	"carryover/server/outline"
	"carryover/upstream/body"
)

func TestMemory_KeepsFourOutlinesOfAConversation(t *testing.T) {
	key, m := outline.NewKey(), outline.NewMemory(0)
	now := key.Of(parse(t, body.Chat, chat("", next)))
	for i := range byte(6) {
		m.Keep([32]byte{1}, [16]byte{i}, key.Of(parse(t, body.Chat, chat("", asked))), outline.Reply{})
	}
	for i := range byte(6) {
		got := m.Compare([32]byte{1}, [16]byte{i}, now).Position
		if known := got == "messages[0].content"; known != (i >= 2) || !known && got != "" {
			t.Errorf("ticket %d: got %q", i, got)
		}
	}
	if got := m.Compare([32]byte{2}, [16]byte{5}, now).Position; got != "" {
		t.Errorf("another conversation: got %q", got)
	}
	before := m.Bytes()
	m.Keep([32]byte{1}, [16]byte{5}, key.Of(parse(t, body.Chat, chat("", asked))), outline.Reply{Reasoning: true})
	if m.Bytes() != before {
		t.Errorf("the same ticket again: %d bytes, then %d", before, m.Bytes())
	}
}

func TestMemory_IsBounded(t *testing.T) {
	const most = 64 << 10
	key, m := outline.NewKey(), outline.NewMemory(most)
	o := key.Of(parse(t, body.Chat, longChat(4<<10)))
	for i := range 1000 {
		m.Keep([32]byte{byte(i), byte(i >> 8)}, [16]byte{}, o, outline.Reply{})
		if m.Bytes() > most {
			t.Fatalf("%d bytes after %d conversations, want at most %d", m.Bytes(), i+1, most)
		}
	}
	now := key.Of(parse(t, body.Chat, chat("", next)))
	if m.Compare([32]byte{999 & 0xff, 999 >> 8}, [16]byte{}, now).Position == "" {
		t.Error("the conversation that was used last is forgotten")
	}
	if m.Compare([32]byte{0}, [16]byte{}, now).Position != "" {
		t.Error("the conversation that was used first is not forgotten")
	}
	huge := key.Of(parse(t, body.Chat, longChat(2<<20)))
	small := outline.NewMemory(1 << 10)
	small.Keep([32]byte{1}, [16]byte{}, huge, outline.Reply{})
	if small.Bytes() != 0 {
		t.Errorf("an outline above the limit is kept: %d bytes", small.Bytes())
	}
	small.Keep([32]byte{1}, [16]byte{}, nil, outline.Reply{})
	if small.Bytes() != 0 {
		t.Errorf("no outline takes %d bytes", small.Bytes())
	}
}

func TestMemory_IsSafeForConcurrentUse(t *testing.T) {
	key, m := outline.NewKey(), outline.NewMemory(32<<10)
	o := key.Of(parse(t, body.Chat, chat("", asked, reply, next)))
	var all sync.WaitGroup
	for g := range byte(4) {
		all.Go(func() {
			for i := range 500 {
				m.Keep([32]byte{byte(i)}, [16]byte{g}, o, outline.Reply{})
				m.Compare([32]byte{byte(i)}, [16]byte{g}, o)
			}
		})
	}
	all.Wait()
	if m.Bytes() > 32<<10 {
		t.Errorf("%d bytes", m.Bytes())
	}
}

func ExampleCompare() {
	key := outline.NewKey()
	before, _ := body.ParseRequest(body.Chat, []byte(chat("", system, asked)))
	now, _ := body.ParseRequest(body.Chat, []byte(chat("", system, question, reply, next)))
	fmt.Println(outline.Compare(key.Of(before), outline.Reply{}, key.Of(now)).Position)
	// Output: messages[1].name
}
