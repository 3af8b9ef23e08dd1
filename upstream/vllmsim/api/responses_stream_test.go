package api

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/recordedtest"
	"carryover/upstream/vllmsim/wire"
)

// recordedItem is an item of an output, of any kind.
type recordedItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Status    *string         `json:"status"`
	Content   []reasoningPart `json:"content"`
	Arguments string          `json:"arguments"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
}

// object is the item as the simulator writes it.
func (r recordedItem) object() any {
	switch r.Type {
	case "reasoning":
		return newReasoningItem(r.ID, r.Status, &r.Content[0].Text)
	case "message":
		return newMessageItem(r.ID, *r.Status, &r.Content[0].Text)
	default:
		return callItem{Arguments: r.Arguments, CallID: r.CallID, Name: r.Name, Type: r.Type, ID: r.ID, Status: *r.Status}
	}
}

// recordedResponse is a response as the simulator has it, with its items.
func recordedResponse(t *testing.T, raw []byte) responseObject {
	t.Helper()
	var o responseObject
	var output struct {
		Items []recordedItem `json:"output"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &output); err != nil {
		t.Fatal(err)
	}
	o.Output = []any{}
	for _, item := range output.Items {
		o.Output = append(o.Output, item.object())
	}
	return o
}

// rewriteResponse has a response stream write what a recorded one says: its responses, pieces and ids.
func rewriteResponse(t *testing.T, events []recordedtest.Frame) string {
	t.Helper()
	type data struct {
		Response json.RawMessage `json:"response"`
		Item     recordedItem    `json:"item"`
		Delta    string          `json:"delta"`
	}
	list := make([]data, len(events))
	var newIDs []string
	for n, e := range events {
		if err := json.Unmarshal([]byte(e.Data), &list[n]); err != nil {
			t.Fatal(err)
		}
		if e.Name == "response.output_item.added" {
			newIDs = append(newIDs, list[n].Item.ID)
		}
	}
	w := httptest.NewRecorder()
	s := newResponseStream(w, func(kind string) string {
		next := newIDs[0]
		newIDs = newIDs[1:]
		if !strings.HasPrefix(next, kind+"_") {
			t.Errorf("recorded id %s for an item of kind %s", next, kind)
		}
		return next
	})
	for n, d := range list {
		switch events[n].Name {
		case "response.created":
			s.begin(recordedResponse(t, d.Response))
		case "response.output_item.added":
			if d.Item.Type == "function_call" {
				s.piece(piece{call: &toolCallDelta{ID: d.Item.CallID, Function: toolFunctionDelta{Name: d.Item.Name}}})
			}
		case "response.reasoning_text.delta":
			s.piece(piece{reasoning: &d.Delta})
		case "response.function_call_arguments.delta":
			s.piece(piece{call: &toolCallDelta{Function: toolFunctionDelta{Arguments: d.Delta}}})
		case "response.completed":
			s.end(statusCompleted)
			o := recordedResponse(t, d.Response)
			o.Output = s.items
			s.send(responseEvent{Type: events[n].Name, Response: &o})
		}
	}
	return w.Body.String()
}

func TestResponsesRecordings_StreamsByteForByte(t *testing.T) {
	for _, name := range []string{"09", "10", "11"} {
		var rec recordedAnswer
		recordedtest.Read(t, "../../..", "vllm-0.32-agents", name, &rec)
		if got := rewriteResponse(t, recordedtest.Frames(t, rec.Response.Text)); got != rec.Response.Text {
			t.Errorf("%s: wrote\n%s\nrecorded\n%s", name, got, rec.Response.Text)
		}
	}
}

// TestResponsesRecordings_WholeByteForByte includes 12, whose request needs the store that the simulator does not have.
func TestResponsesRecordings_WholeByteForByte(t *testing.T) {
	for _, name := range []string{"08", "12"} {
		var rec recordedAnswer
		recordedtest.Read(t, "../../..", "vllm-0.32-agents", name, &rec)
		got, err := wire.Marshal(recordedResponse(t, rec.Response.JSON))
		if err != nil {
			t.Fatal(err)
		}
		if want := compact(t, rec.Response.JSON); !bytes.Equal(got, want) {
			t.Errorf("%s: wrote\n%s\nrecorded\n%s", name, got, want)
		}
	}
}
