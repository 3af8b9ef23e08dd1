package kvevents

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds every wait of a test.
const limit = 60 * time.Second

// notes is a sink that writes down what it is told.
type notes struct {
	mu   sync.Mutex
	said []string
	held map[uint64]bool // the blocks that are held, nil if that is not known
}

func (n *notes) note(text string, change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, text)
	change()
}

func (n *notes) Started() { n.note("started", func() { n.held = map[uint64]bool{} }) }

func (n *notes) Lost() { n.note("lost", func() { n.held = nil }) }

func (n *notes) Stored(b Blocks) {
	parent := "root"
	if !b.Root {
		parent = fmt.Sprint(b.Parent)
	}
	text := fmt.Sprintf("stored %s<-%v tokens %d of %d", parent, b.Hashes, len(b.Tokens), b.Size)
	if b.Adapter != "" {
		text += " by " + b.Adapter
	}
	if b.Extra != nil {
		text += fmt.Sprintf(" with %q", b.Extra)
	}
	n.note(text, func() {
		for _, hash := range b.Hashes {
			if n.held != nil {
				n.held[hash] = true
			}
		}
	})
}

func (n *notes) Removed(hashes []uint64) {
	n.note(fmt.Sprint("removed ", hashes), func() {
		for _, hash := range hashes {
			delete(n.held, hash)
		}
	})
}

func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.said)
}

// holds returns the blocks that are held; known is false if that is not known.
func (n *notes) holds() (hashes []uint64, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for hash := range n.held {
		hashes = append(hashes, hash)
	}
	slices.Sort(hashes)
	return hashes, n.held != nil
}

// want compares what a sink was told, and forgets it.
func (n *notes) want(t *testing.T, what string, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.said, want) {
		t.Errorf("%s: told\n\t%s\nwant\n\t%s", what, strings.Join(n.said, "\n\t"), strings.Join(want, "\n\t"))
	}
	n.said = nil
}

// step is one file of testdata/exchanges/kv-events.
type step struct {
	Batches []struct {
		FramesHex []string `json:"frames_hex"`
		Seq       uint64   `json:"seq"`
		Decoded   []any    `json:"decoded"`
	} `json:"batches"`
	SentHex           []string   `json:"sent_hex"`
	ReceivedFramesHex [][]string `json:"received_frames_hex"`
}

// recorded returns the files in their order.
func recorded(tb testing.TB) (steps []step) {
	tb.Helper()
	files, err := filepath.Glob("../../../testdata/exchanges/kv-events/*.json")
	if err != nil || len(files) != 12 {
		tb.Fatalf("%d recordings, %v; want 12", len(files), err)
	}
	for _, file := range files { // Glob sorts
		raw, err := os.ReadFile(file)
		must(tb, err)
		var s step
		if err := json.Unmarshal(raw, &s); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		steps = append(steps, s)
	}
	return steps
}

func unhex(tb testing.TB, texts []string) (frames [][]byte) {
	tb.Helper()
	for _, text := range texts {
		raw, err := hex.DecodeString(text)
		must(tb, err)
		frames = append(frames, raw)
	}
	return frames
}

// stored is a batch that stores one block of two tokens as vLLM 0.24 and newer write it.
func stored(hash uint64) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, 1.5)
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendMapHeader(b, 5)
	b = msgp.AppendString(msgp.AppendString(b, "type"), nameStored)
	b = msgp.AppendUint64(msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1), hash)
	b = msgp.AppendNil(msgp.AppendString(b, "parent_block_hash"))
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), 2)
	b = msgp.AppendUint64(msgp.AppendUint64(b, 7), 8)
	b = msgp.AppendUint64(msgp.AppendString(b, "block_size"), 2)
	return msgp.AppendUint64(b, 0)
}

// says is what a sink says of stored(hash).
func says(hash uint64) string { return fmt.Sprintf("stored root<-[%d] tokens 2 of 2", hash) }

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
