package api

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/recordedtest"
	"carryover/upstream/vllmsim/wire"
)

// recordedAnswer is the answer of a recorded exchange.
type recordedAnswer struct {
	Response struct {
		JSON json.RawMessage `json:"json"`
		Text string          `json:"text"`
	} `json:"response"`
}

func members(t *testing.T, e recordedtest.Frame) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(e.Data), &o); err != nil {
		t.Fatalf("event %s: %v: %s", e.Name, err, e.Data)
	}
	if o["type"] != e.Name {
		t.Fatalf("event %s has type %v", e.Name, o["type"])
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
func rewrite(t *testing.T, events []recordedtest.Frame) string {
	t.Helper()
	w := httptest.NewRecorder()
	var signatures []string
	s := newMessageStream(w, func() string {
		next := signatures[0]
		signatures = signatures[1:]
		return next
	})
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
		decode(e.Data, &d)
		switch e.Name {
		case "message_start":
			s.start(d.Message)
		case "content_block_start":
			if d.Block.Type == "tool_use" {
				s.piece(piece{call: &toolCallDelta{ID: d.Block.ID, Function: toolFunctionDelta{Name: d.Block.Name}}})
			}
		case "content_block_delta":
			p := piece{content: d.Delta.Text, reasoning: d.Delta.Thinking}
			if d.Delta.PartialJSON != nil {
				p.call = &toolCallDelta{Function: toolFunctionDelta{Arguments: *d.Delta.PartialJSON}}
			}
			s.piece(p)
		case "message_delta":
			var stop struct {
				Delta stopDelta `json:"delta"`
			}
			decode(e.Data, &stop)
			s.end(messageEvent{Type: e.Name, Delta: stop.Delta, Usage: &d.Usage, KVTransferParams: d.Params})
		case "error":
			s.fail(wire.MessageStreamError(&config.Config{Version: config.VLLM032}))
		}
	}
	return w.Body.String()
}

func TestMessagesRecordings_StreamsByteForByte(t *testing.T) {
	for _, name := range []string{"02", "04", "06", "07"} {
		var rec recordedAnswer
		recordedtest.Read(t, "../../..", "vllm-0.32-agents", name, &rec)
		if got := rewrite(t, recordedtest.Frames(t, rec.Response.Text)); got != rec.Response.Text {
			t.Errorf("%s: wrote\n%s\nrecorded\n%s", name, got, rec.Response.Text)
		}
	}
}
