// Package recordedtest reads recorded exchanges, for tests of the simulator.
package recordedtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/config"
)

// Read reads recording number from a folder of testdata/exchanges. root is the folder of the repository. Read replaces the fingerprint, a
// hash of the engine's settings, by the simulator's.
func Read(t *testing.T, root, folder, number string, v any) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "testdata/exchanges", folder, number+"-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recording %s: %v %v", number, files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	raw = regexp.MustCompile(`vllm-0\.32\.0-[0-9a-f]{8}`).ReplaceAll(raw, []byte((&config.Config{Version: config.VLLM032}).Fingerprint()))
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("recording %s: %v", number, err)
	}
}

// Frame is an event of a stream with named events.
type Frame struct{ Name, Data string }

// Frames splits a stream. Each event must have a name and one line of data, and nothing else.
func Frames(t *testing.T, text string) []Frame {
	t.Helper()
	text, ok := strings.CutSuffix(text, "\n\n")
	if !ok {
		t.Fatalf("stream does not end with a blank line: %q", text)
	}
	var events []Frame
	for _, event := range strings.Split(text, "\n\n") {
		name, data, ok := strings.Cut(event, "\ndata: ")
		name, named := strings.CutPrefix(name, "event: ")
		if !ok || !named || strings.Contains(data, "\n") {
			t.Fatalf("no event with a name and a line of data: %q", event)
		}
		events = append(events, Frame{name, data})
	}
	return events
}
