package api

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/wire"
)

const recordings = "../../../testdata/exchanges/vllm-0.32-agents"

// recordedAnswer is the answer of a recorded exchange.
type recordedAnswer struct {
	Response struct {
		JSON json.RawMessage `json:"json"`
		Text string          `json:"text"`
	} `json:"response"`
}

func readAnswer(t *testing.T, name string, v *recordedAnswer) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(recordings, name+"-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recording %s: %v %v", name, files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("recording %s: %v", name, err)
	}
}

// frame is an event of a stream with named events.
type frame struct {
	name, data string
}

// frames takes a stream apart; anything but a name and one line of data for each event is an error.
func frames(t *testing.T, text string) []frame {
	t.Helper()
	text, ok := strings.CutSuffix(text, "\n\n")
	if !ok {
		t.Fatalf("stream does not end with a blank line: %q", text)
	}
	var events []frame
	for _, event := range strings.Split(text, "\n\n") {
		name, data, ok := strings.Cut(event, "\ndata: ")
		name, named := strings.CutPrefix(name, "event: ")
		if !ok || !named || strings.Contains(data, "\n") {
			t.Fatalf("no event with a name and a line of data: %q", event)
		}
		events = append(events, frame{name, data})
	}
	return events
}

func members(t *testing.T, e frame) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(e.data), &o); err != nil {
		t.Fatalf("event %s: %v: %s", e.name, err, e.data)
	}
	if o["type"] != e.name {
		t.Fatalf("event %s has type %v", e.name, o["type"])
	}
	return o
}

func compact(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// rewrite has a message stream write what a recorded one says: its pieces, signatures, usage and params.
func rewrite(t *testing.T, events []frame) string {
	t.Helper()
	w := httptest.NewRecorder()
	var signatures []string
	s := newMessageStream(w, func() string {
		next := signatures[0]
		signatures = signatures[1:]
		return next
	})
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	decode := func(from string, v any) {
		if err := json.Unmarshal([]byte(from), v); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range events {
		if sign, ok := members(t, e)["delta"].(map[string]any); ok && sign["type"] == "signature_delta" {
			signatures = append(signatures, sign["signature"].(string))
		}
	}
	for _, e := range events {
		var d struct {
			Message openingMessage  `json:"message"`
			Block   contentBlock    `json:"content_block"`
			Delta   contentDelta    `json:"delta"`
			Usage   messageUsage    `json:"usage"`
			Params  json.RawMessage `json:"kv_transfer_params"`
		}
		decode(e.data, &d)
		switch e.name {
		case "message_start":
			check(s.start(d.Message))
		case "content_block_start":
			if d.Block.Type == "tool_use" {
				check(s.piece(piece{call: &toolCallDelta{ID: d.Block.ID, Function: toolFunctionDelta{Name: d.Block.Name}}}))
			}
		case "content_block_delta":
			p := piece{content: d.Delta.Text, reasoning: d.Delta.Thinking}
			if d.Delta.PartialJSON != nil {
				p.call = &toolCallDelta{Function: toolFunctionDelta{Arguments: *d.Delta.PartialJSON}}
			}
			check(s.piece(p))
		case "message_delta":
			end := messageEnd{usage: d.Usage, params: d.Params}
			var stop struct {
				Delta stopDelta `json:"delta"`
			}
			decode(e.data, &stop)
			end.delta = stop.Delta
			check(s.end(end))
		case "error":
			check(s.fail(wire.MessageStreamError(&config.Config{Version: config.VLLM032})))
		}
	}
	return w.Body.String()
}

func TestMessagesRecordings_StreamsByteForByte(t *testing.T) {
	for _, name := range []string{"02", "04", "06", "07"} {
		var rec recordedAnswer
		readAnswer(t, name, &rec)
		if got := rewrite(t, frames(t, rec.Response.Text)); got != rec.Response.Text {
			t.Errorf("%s: wrote\n%s\nrecorded\n%s", name, got, rec.Response.Text)
		}
	}
}
