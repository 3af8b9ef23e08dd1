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

	"go.uber.org/goleak"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		zmqtest.Must(tb, err)
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
		zmqtest.Must(tb, err)
		frames = append(frames, raw)
	}
	return frames
}

// batchOf is a batch of events.
func batchOf(events ...string) []byte {
	return zmqtest.Pack("[1.5,[" + strings.Join(events, ",") + "],0]")
}

// stored is a batch that stores one block of two tokens as vLLM 0.24 and newer write it.
func stored(hash uint64) []byte {
	return batchOf(fmt.Sprintf(`{"type":"BlockStored","block_hashes":[%d],"parent_block_hash":null,"token_ids":[7,8],"block_size":2}`, hash))
}

// says is what a sink says of stored(hash).
func says(hash uint64) string { return fmt.Sprintf("stored root<-[%d] tokens 2 of 2", hash) }
