package vllmsim

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
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
func rewriteResponse(t *testing.T, events []messageFrame) string {
	t.Helper()
	type data struct {
		Response json.RawMessage `json:"response"`
		Item     recordedItem    `json:"item"`
		Delta    string          `json:"delta"`
	}
	list := make([]data, len(events))
	var newIDs []string
	for n, e := range events {
		if err := json.Unmarshal([]byte(e.data), &list[n]); err != nil {
			t.Fatal(err)
		}
		if e.name == "response.output_item.added" {
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
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for n, d := range list {
		switch events[n].name {
		case "response.created":
			check(s.begin(recordedResponse(t, d.Response)))
		case "response.output_item.added":
			if d.Item.Type == "function_call" {
				check(s.piece(piece{call: &toolCallDelta{ID: d.Item.CallID, Function: toolFunctionDelta{Name: d.Item.Name}}}))
			}
		case "response.reasoning_text.delta":
			check(s.piece(piece{reasoning: &d.Delta}))
		case "response.function_call_arguments.delta":
			check(s.piece(piece{call: &toolCallDelta{Function: toolFunctionDelta{Arguments: d.Delta}}}))
		case "response.completed":
			check(s.leave())
			o := recordedResponse(t, d.Response)
			o.Output = s.items
			check(s.send(responseEvent{Type: events[n].name, Response: &o}))
		}
	}
	return w.Body.String()
}

func TestResponsesRecordings_StreamsByteForByte(t *testing.T) {
	for _, name := range []string{"09", "10", "11"} {
		var rec recording
		readMessagesRecording(t, name, &rec)
		if got := rewriteResponse(t, messageFrames(t, rec.Response.Text)); got != rec.Response.Text {
			t.Errorf("%s: wrote\n%s\nrecorded\n%s", name, got, rec.Response.Text)
		}
	}
}

func compacted(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestResponsesRecordings_WholeByteForByte includes 12, whose request needs the store that the simulator does not have.
func TestResponsesRecordings_WholeByteForByte(t *testing.T) {
	for _, name := range []string{"08", "12"} {
		var rec recording
		readMessagesRecording(t, name, &rec)
		got, err := marshal(recordedResponse(t, rec.Response.JSON))
		if err != nil {
			t.Fatal(err)
		}
		if want := compacted(t, rec.Response.JSON); !bytes.Equal(got, want) {
			t.Errorf("%s: wrote\n%s\nrecorded\n%s", name, got, want)
		}
	}
}

// saidOutput and saidMessages are what the model says: random text, all of it a thought, on the real pair.
var (
	saidOutput   = regexp.MustCompile(`"output":\[.*\],"parallel_tool_calls"`)
	saidMessages = regexp.MustCompile(`"output_messages":\[.*\]`)
)

// compareResponse compares all but what the model says.
func compareResponse(t *testing.T, name string, want, got []byte) {
	t.Helper()
	unsaid := func(raw []byte) []byte {
		raw = saidOutput.ReplaceAll(compacted(t, raw), []byte(`"output":0,"parallel_tool_calls"`))
		return saidMessages.ReplaceAll(raw, []byte(`"output_messages":0`))
	}
	compareJSON(t, name, unsaid(want), levelledMessage(t, unsaid(want), unsaid(got)))
}

// TestResponsesRecordings_Handover sends the recorded requests of 08 and 09, with the ticket of the simulated prefill.
func TestResponsesRecordings_Handover(t *testing.T) {
	p, d := startTinyPair(t, func(c *Config) { c.OutputTokenIDs = false })
	var first, second recording
	readMessagesRecording(t, "08", &first)
	readMessagesRecording(t, "09", &second)
	prefill := post(t, p, pathResponses, first.Request.Body)
	if prefill.status != 200 {
		t.Fatalf("prefill answered %d: %s", prefill.status, prefill.raw)
	}
	compareResponse(t, "08", first.Response.JSON, prefill.raw)
	prompt := prefill.body["input_messages"].([]any)[0].(object)["tokens"]
	body := with(second.Request.Body, object{"cache_salt": first.Request.Body["cache_salt"], "kv_transfer_params": with(prefill.params(), object{"prompt_token_ids": prompt})})
	got := messageFrames(t, string(post(t, d, pathResponses, body).raw))
	want := messageFrames(t, second.Response.Text)
	for _, event := range []string{"response.created", "response.in_progress", "response.completed"} {
		at := func(events []messageFrame) []byte {
			n := slices.IndexFunc(events, func(e messageFrame) bool { return e.name == event })
			if n < 0 {
				t.Fatalf("no %s", event)
			}
			return []byte(events[n].data)
		}
		compareResponse(t, "09 "+event, at(want), at(got))
	}
	if s := d.Stats(); s.ComputedTokens > 1 || s.Loads != 1 {
		t.Errorf("decode computed %d prompt tokens after %d loads", s.ComputedTokens, s.Loads)
	}
	assertClean(t, p, d)
}

func TestResponsesRecordings_LoadFailure(t *testing.T) {
	p, d := startTinyPair(t, nil)
	var rec recording
	readMessagesRecording(t, "11", &rec)
	body := with(rec.Request.Body, object{"kv_transfer_params": with(rec.Request.Body["kv_transfer_params"].(object), object{"remote_port": p.engines()[0].SidePort})})
	status, _, got, err := attemptAt(t, d, pathResponses, body)
	byRun := regexp.MustCompile(`"id":"[^"]*"|"created_at":\d+`)
	if have, want := byRun.ReplaceAllString(got, ""), byRun.ReplaceAllString(rec.Response.Text, ""); status != 200 || err == nil || have != want {
		t.Errorf("answered %d, error %v\n%s\nrecorded, with the connection cut\n%s", status, err, have, want)
	}
}

func TestResponsesRecordings_SmallAnswers(t *testing.T) {
	p, d := startTinyPair(t, nil)
	var list struct {
		Exchanges []struct {
			recording
			Name string `json:"name"`
		} `json:"exchanges"`
	}
	readMessagesRecording(t, "13", &list)
	seen := 0
	for _, x := range list.Exchanges {
		if x.Request.Path != pathResponses {
			continue
		}
		seen++
		i := p
		if x.Server == "decode" {
			i = d
			x.Request.Body["kv_transfer_params"] = with(x.Request.Body["kv_transfer_params"].(object), object{"remote_port": p.engines()[0].SidePort})
		}
		compareExchange(t, x.Name, x.recording, post(t, i, pathResponses, x.Request.Body))
	}
	if seen != 2 {
		t.Errorf("%d small answers of %s, want 2", seen, pathResponses)
	}
}

// FuzzResponses_RenderOrRefuse has any body rendered: what is refused is a 400, and what is not is a prompt.
func FuzzResponses_RenderOrRefuse(f *testing.F) {
	for _, body := range []string{
		`{"input":"hi","instructions":"Be kind.","reasoning":{"effort":"low"},"stop":"x"}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"u"}]}]}`,
		`{"input":[{"type":"reasoning","summary":[]},{"type":"function_call","name":"f","arguments":"{}"},{"type":"function_call_output","output":[]}]}`,
		`{"input":[{"role":"assistant","content":[],"status":"incomplete"}],"tools":[{"type":"function","name":"f"},{"type":"custom","format":{}}]}`,
		`{"input":[null],"kv_transfer_params":{"prompt_token_ids":[1]}}`, `{"input":null}`, `{"input":[],"max_output_tokens":0}`, `{`, `null`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r, err := parseResponses([]byte(body))
		var chat *apiRequest
		if err == nil {
			chat, err = r.chatRequest()
		}
		if err != nil {
			if api := asAPIError(err); api.status != 400 {
				t.Errorf("%q is refused with %d, want 400", body, api.status)
			}
			return
		}
		text, err := chat.conversation(true).Render(TemplateChatML)
		if err == nil && !chat.ContinueFinal && !strings.HasSuffix(text, "<|im_start|>assistant\n") {
			t.Errorf("%q renders %q", body, text)
		}
	})
}
