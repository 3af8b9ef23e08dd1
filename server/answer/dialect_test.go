package answer

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"carryover/sse"
	"carryover/upstream/body"
	"carryover/upstream/exchangetest"
	"carryover/upstream/fleet/facts"
)

// told is a turn that notes what it is told of an answer.
type told struct {
	passed  int
	restart bool
}

// FreshAsOf implements Turn.
func (t *told) FreshAsOf() time.Time { return time.Now() }

// Begun implements Turn.
func (*told) Begun() {}

// Passed implements Turn.
func (t *told) Passed() { t.passed++ }

// MayRestart implements Turn.
func (t *told) MayRestart() bool { return t.restart }

// agentStream is an answer of an API with a dialect, and what has reached the client of it.
type agentStream struct {
	*Reader
	out   strings.Builder
	ended []string // what the client had whenever decode's end of the answer had been read
}

// agentAnswer is an answer of an API to a leg, of which nothing has come.
func agentAnswer(answerIDs *facts.AnswerIDs, api body.API, leg string, asks Asks, turn Turn) *Reader {
	a := &Reader{}
	a.Reset(&Leg{API: api, RequestID: leg, AnswerIDs: answerIDs, Arrived: time.Now(), Asks: asks}, turn)
	return a
}

// relayAgents relays a stream as the server does.
func relayAgents(answerIDs *facts.AnswerIDs, api body.API, leg string, asks Asks, restart bool, from io.Reader) (*agentStream, error) {
	asks.UsageDue = true // their answers all have a usage
	s := &agentStream{}
	s.Reader = agentAnswer(answerIDs, api, leg, asks, &told{restart: restart})
	cfg := s.Relay()
	observe := cfg.Observe
	cfg.Observe = func(ev sse.Event) sse.Verdict {
		verdict := observe(ev)
		if s.Done {
			s.ended = append(s.ended, s.out.String())
		}
		return verdict
	}
	err := sse.New(&s.out, nil, cfg).Run(from)
	return s, err
}

// agentRecording is the body of a recorded stream.
func agentRecording(tb testing.TB, name string) string {
	tb.Helper()
	return exchangetest.Read(tb, "vllm-0.32-agents", name+".json").Response.Text
}

// agentSplits are the ways in which a stream arrives.
func agentSplits(text string) map[string]io.Reader {
	return map[string]io.Reader{
		"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)), "in halves": iotest.HalfReader(strings.NewReader(text)),
		"with its end": iotest.DataErrReader(strings.NewReader(text)),
	}
}

// What a client of a stock engine would not see, as regular expressions that know nothing of JSON.
var (
	recordedMember = regexp.MustCompile(`,"kv_transfer_params":\{[^}]*\}`)
	recordedParams = regexp.MustCompile(`"kv_transfer_params":\{[^}]*\}`)
	recordedLists  = regexp.MustCompile(`"(input|output)_messages":\[\{[^\]]*\],"type":"raw_message_tokens"\}\]`)
)

func TestDialect_RelaysRecordingsAsAStockEngineWouldSendThem(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	for _, tc := range []struct {
		name, leg string
		api       body.API
		finish    string
		usage     Usage
		params    bool
		before    string // the last event that the client has when the ticket is put
	}{
		{"02-messages-decode-stream-forced-ids", "", body.Messages, "length", Usage{157, 24, 0}, false, "content_block_stop"},
		{"04-messages-decode-stream-params-in-message-delta", "proto-1", body.Messages, "length", Usage{158, 40, 0}, true, "content_block_stop"},
		{"06-messages-tool-stream", "ms2-tool-stream", body.Messages, "length", Usage{139, 60, 0}, false, "content_block_stop"},
		{"09-responses-decode-stream", "9be3b587e87f3b76", body.Responses, "length", Usage{169, 24, 0}, true, "response.output_item.done"},
		{"10-responses-tool-stream", "9e38aee931cbcdce", body.Responses, "length", Usage{135, 60, 0}, true, "response.output_item.done"},
	} {
		text := agentRecording(t, tc.name)
		for _, hidden := range []bool{true, false} {
			want := recordedMember.ReplaceAllString(text, "")
			if tc.api == body.Responses {
				want = recordedParams.ReplaceAllString(text, `"kv_transfer_params":null`)
				if hidden {
					want = recordedLists.ReplaceAllString(want, `"${1}_messages":null`)
				}
			}
			for split, from := range agentSplits(text) {
				got, err := relayAgents(answerIDs, tc.api, tc.leg, Asks{IDs: hidden, Hidden: hidden}, true, from)
				if err != nil || got.out.String() != want {
					t.Errorf("%s, %s: error %v, relayed\n%.3000s\nwant\n%.3000s", tc.name, split, err, got.out.String(), want)
				}
				if tc.leg == "" {
					got.usage = tc.usage // another run of the recording is not the point
				}
				if got.finish != tc.finish || got.usage != tc.usage || (got.params != nil) != tc.params || got.Failed || got.completeness(false) != Complete {
					t.Errorf("%s, %s: learnt %+v %+v, params %.40q; want %q, %+v", tc.name, split, got.ending, got.progress, got.params, tc.finish, tc.usage)
				}
				if tc.leg != "" && !hidden && got.ineligible != "" {
					t.Errorf("%s, %s: leaves no ticket: %s", tc.name, split, got.ineligible)
				}
				if len(got.ended) == 0 || strings.Contains(got.ended[0], "event: message_delta") || strings.Contains(got.ended[0], "event: response.completed") {
					t.Errorf("%s, %s: the ticket was put %d times, first behind %.300q", tc.name, split, len(got.ended), got.ended)
				}
				if split == "byte by byte" && !strings.Contains(got.ended[0], "event: "+tc.before) {
					t.Errorf("%s: the ticket was put when the client had %.300q, want all up to %s", tc.name, got.ended[0], tc.before)
				}
			}
		}
	}
}

// What opens a stream reaches nobody when the KV can't be read, so that the leg can be sent again.
func TestDialect_FailedLoadsReachNobody(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	for name, tc := range map[string]struct {
		api  body.API
		text string
		stop bool // it is the engine's own error that ends it
	}{
		"error event":                 {body.Messages, agentRecording(t, "07-messages-stream-kv-load-failure"), true},
		"end behind message_start":    {body.Messages, strings.SplitAfter(agentRecording(t, "07-messages-stream-kv-load-failure"), "\n\n")[0], false},
		"cut behind in_progress":      {body.Responses, agentRecording(t, "11-responses-stream-kv-load-failure"), false},
		"error event behind created":  {body.Responses, strings.SplitAfter(agentRecording(t, "11-responses-stream-kv-load-failure"), "\n\n")[0] + responseError, true},
		"error event, spelled chat's": {body.Responses, strings.SplitAfter(agentRecording(t, "11-responses-stream-kv-load-failure"), "\n\n")[0] + "data: {\"error\":{\"code\":500}}\n\n", true},
	} {
		for _, again := range []bool{true, !tc.stop} { // whether it can be tried again
			want := ""
			if !again {
				want = tc.text
			}
			for split, from := range agentSplits(tc.text) {
				got, err := relayAgents(answerIDs, tc.api, "", Asks{}, again, from)
				_, broken := errors.AsType[*sse.ReadError](err)
				if got.out.String() != want || (err == nil) == again || errors.Is(err, sse.ErrStopped) != (tc.stop && again) || broken == tc.stop || got.Failed != tc.stop || got.completeness(false) != Incomplete {
					t.Errorf("%s, %s, tried again %t: got %v, failed %t, relayed %q", name, split, again, err, got.Failed, got.out.String())
				}
			}
		}
	}
}

const responseError = "event: error\ndata: {\"type\":\"error\",\"code\":500,\"message\":\"x\",\"param\":null,\"sequence_number\":1}\n\n"

// completedWith is response.completed with these members of its response.
func completedWith(members string) string {
	return "event: response.completed\ndata: {\"response\":{\"id\":\"resp_leg\"," + members + "},\"sequence_number\":9,\"type\":\"response.completed\"}\n\n"
}

// A stream of chat or text that ends in order has all of its answer, or it has broken off.
func TestChecked_EachChoiceNeedsItsFinish(t *testing.T) {
	const on0, on1, end0, end1 = "0:null", "1:null", `0:"stop"`, `1:"length"`
	chunk := regexp.MustCompile(`(\d):("\w+"|null)`)
	for stream, whole := range map[string]bool{
		"1 ": false, "1 : ping": false, "1 " + on0: false, `1 {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`: false,
		"1 " + end1: true, "1 " + on0 + "|" + end0: true, "1 " + on0 + "|[DONE]": true, "1 " + on0 + `|{"error": {"message": "m"}}`: true,
		"2 " + on0 + on1 + "|" + end0: false, "2 " + end0 + "|" + end0: false, "2 " + end1 + "|" + on0: false,
		"2 " + end1 + "|" + on0 + "|" + end0: true, "2 " + on0 + end1 + "|" + end0: true, "2 " + end0 + end1: true,
	} {
		a := agentAnswer(&facts.AnswerIDs{}, body.Text, "x", Asks{}, &told{})
		a.leg.Choices = int(stream[0] - '0')
		text := strings.ReplaceAll(chunk.ReplaceAllString(stream[2:], `{"index": $1, "text": "a", "finish_reason": $2}`), "}{", "}, {")
		var out strings.Builder
		in := ""
		for data := range strings.SplitSeq(text, "|") {
			if strings.HasPrefix(data, `{"index"`) {
				data = `{"choices": [` + data + "]}"
			}
			in += "data: " + data + "\n\n"
		}
		if err := sse.New(&out, nil, a.Relay()).Run(strings.NewReader(in)); whole != (err == nil) || whole && out.String() != in {
			t.Errorf("%s: got %v behind %q", stream, err, out.String())
		}
		if other := strings.Contains(stream, "1:"); other != (a.ineligible == "choices") { // it leaves no ticket
			t.Errorf("%s: got %q", stream, a.ineligible)
		}
	}
}

// Any further event releases the first, also one that no client sees.
func TestAwait_EventThatIsDroppedReleasesTheRole(t *testing.T) {
	event := func(delta, ids string) string {
		return `data: {"id":"chatcmpl-x","choices":[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":null,"token_ids":` + ids + "}]}\n\n"
	}
	turn := &told{}
	a := agentAnswer(&facts.AnswerIDs{}, body.Chat, "x", Asks{IDs: true, Hidden: true}, turn)
	chunkMode{proven: true}.prove(t, a)
	role := event(`{"role":"assistant","content":""}`, "null")
	var out strings.Builder
	_ = sse.New(&out, nil, a.Relay()).Run(io.MultiReader(strings.NewReader(role+event("{}", "[5]")), iotest.ErrReader(errors.New("broken"))))
	if out.String() != role || turn.passed != 1 {
		t.Errorf("got %q and passed %d times, want the role, once", out.String(), turn.passed)
	}
}

func TestDialect_Finishes(t *testing.T) {
	untold := Usage{-1, -1, -1}
	delta := func(stop, more string) string {
		return `data: {"type":"message_delta","delta":{"stop_reason":` + stop + `,"stop_sequence":null}` + more + "}\n\ndata: {\"type\":\"message_stop\"}\n\n"
	}
	for name, tc := range map[string]struct {
		text       string
		ending     ending
		ineligible string
	}{
		"end_turn":      {delta(`"end_turn"`, `,"usage":{"input_tokens":5,"cache_read_input_tokens":30,"cache_creation_input_tokens":200,"output_tokens":7}`), ending{"stop", false, Usage{235, 7, 30}}, ""},
		"null counts":   {delta(`"end_turn"`, `,"usage":{"input_tokens":5,"cache_read_input_tokens":null,"output_tokens":7}`), ending{"stop", false, Usage{5, 7, -1}}, ""},
		"stop_sequence": {delta(`"stop_sequence"`, ""), ending{"stop", true, untold}, ""},
		"tool_use":      {delta(`"tool_use"`, ""), ending{"tool_calls", false, untold}, ""},
		"max_tokens":    {delta(`"max_tokens"`, ""), ending{"length", false, untold}, ""},
		"refusal":       {delta(`"refusal"`, ""), ending{"refusal", false, untold}, ""},
		"cut in JSON":   {"data: {\"type\":\"message_stop\"\n\n", ending{"", false, untold}, Unparsable},
		"no JSON":       {"data: hello\n\n" + delta(`"end_turn"`, ""), ending{"stop", false, untold}, Unparsable},
		"completed":     {completedWith(`"status":"completed","usage":{"input_tokens":9,"output_tokens":2,"input_tokens_details":{"cached_tokens":8}},"output":[{"type":"message"}]`), ending{"stop", false, Usage{9, 2, 8}}, ""},
		"call":          {completedWith(`"status":"completed","output":[{"type":"reasoning"},{"type":"function_call"}]`), ending{"tool_calls", false, untold}, ""},
		"limit":         {completedWith(`"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}`), ending{"length", false, untold}, ""},
		"filter":        {completedWith(`"status":"incomplete","incomplete_details":{"reason":"content_filter"}`), ending{"incomplete", false, untold}, ""},
		"another's":     {strings.ReplaceAll(completedWith(`"status":"completed"`), "resp_leg", "resp_other"), ending{"stop", false, untold}, "response_id"},
	} {
		answerIDs := &facts.AnswerIDs{} // one that echoes is held to it
		api := body.Messages
		if strings.Contains(tc.text, "response.completed") {
			api = body.Responses
		}
		got, err := relayAgents(answerIDs, api, "leg", Asks{}, true, strings.NewReader(tc.text))
		if err != nil || got.ending != tc.ending || got.ineligible != tc.ineligible || got.out.String() != tc.text {
			t.Errorf("%s: got %v, %+v, odd %q, relayed %q; want %+v, odd %q", name, err, got.ending, got.ineligible, got.out.String(), tc.ending, tc.ineligible)
		}
	}
}

// Ids that we have asked for show what was computed only as one piece of text; without them there is no ticket.
func TestDialect_ResponsesWithoutIDsLeaveNoTicket(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	const params = `"status":"completed","kv_transfer_params":{"a":1},`
	for name, tc := range map[string]struct{ members, ineligible string }{
		"null":                  {params + `"input_messages":null,"output_messages":null`, "prompt_ids"},
		"two items":             {params + `"input_messages":[{"type":"raw_message_tokens","tokens":[1]},{"type":"raw_message_tokens","tokens":[2]}]`, "prompt_ids"},
		"another type":          {params + `"input_messages":[{"type":"message","tokens":[1]}]`, "prompt_ids"},
		"others than were sent": {params + `"input_messages":[{"type":"raw_message_tokens","tokens":[1]}]`, "prompt_ids"},
	} {
		got, err := relayAgents(answerIDs, body.Responses, "leg", Asks{IDs: true, Hidden: true}, true, strings.NewReader(completedWith(tc.members)))
		if err != nil || got.ineligible != tc.ineligible {
			t.Errorf("%s: got %v, odd %q; want %q", name, err, got.ineligible, tc.ineligible)
		}
	}
}

// However an engine spells what is to be hidden, wherever in the stream it says it, and whatever is beside it.
func TestDialect_HidesWhateverTheShape(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	const secret = `{"remote_host":"10.0.0.1"}`
	started := "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n"
	end := completedWith(`"status":"completed"`)
	event := func(members string) string { return `data: {"type":"response.x","response":{` + members + "}}\n\n" }
	for name, text := range map[string]string{
		"in the last event":   started + completedWith(`"kv_transfer_params":`+secret),
		"behind the end":      started + end + event(`"kv_transfer_params":`+secret),
		"twice":               started + event(`"kv_transfer_params":1,"kv_transfer_params":`+secret) + end,
		"response twice":      started + `data: {"response":{"kv_transfer_params":` + secret + `},"response":{"a":1}}` + "\n\n" + end,
		"in escapes":          started + event(`"kv_tr\u0061nsfer_params":`+secret) + end,
		"response in escapes": started + `data: {"resp\u006fnse":{"kv_transfer_params":` + secret + "}}\n\n" + end,
		"beside what is deep": started + event(`"a":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`,"kv_transfer_params":`+secret) + end,
		"lists":               started + event(`"input_messages":[`+secret+`],"output_messages":["10.0.0.1"]`) + end,
		"spaced":              started + event(`"kv_transfer_params" : `+secret) + end,
		"in lines":            started + "data: {\"response\":\ndata: {\"kv_transfer_params\":\ndata: {\"remote_host\":\ndata: \"10.0.0.1\"}}}\n\n" + end,
	} {
		for split, from := range agentSplits(text) {
			got, err := relayAgents(answerIDs, body.Responses, "leg", Asks{IDs: true, Hidden: true}, true, from)
			if err != nil || strings.Contains(got.out.String(), "10.0.0.1") {
				t.Errorf("%s, %s: got %v, the client sees %q", name, split, err, got.out.String())
			}
		}
	}
}

// A stream says how its events are, and most say a piece of text.
func TestDialect_RelayedCostsNoAllocation(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	for name, tc := range map[string]struct {
		api   body.API
		event string
	}{
		"messages":  {body.Messages, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"é\"},\"index\":0}\n\n"},
		"responses": {body.Responses, "event: response.output_text.delta\ndata: {\"content_index\":0,\"delta\":\"é\",\"item_id\":\"msg_1\",\"output_index\":0,\"sequence_number\":4,\"type\":\"response.output_text.delta\"}\n\n"},
	} {
		costsNothing(t, name, func(testing.TB) *Reader { return agentAnswer(answerIDs, tc.api, "leg", Asks{}, &told{}) }, []byte(tc.event))
	}
}

// An engine that has once answered with the id of its leg is held to it.
func TestDialect_AnothersAnswerReachesNobody(t *testing.T) {
	for api, opening := range map[body.API]string{
		body.Messages:  "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"chatcmpl-ID\"}}\n\n",
		body.Responses: "event: response.created\ndata: {\"response\":{\"id\":\"resp_ID\"},\"type\":\"response.created\"}\n\n",
	} {
		answerIDs := &facts.AnswerIDs{}
		if own, _ := relayAgents(answerIDs, api, "leg", Asks{}, true, strings.NewReader(strings.ReplaceAll(opening, "ID", "leg"))); own.Foreign {
			t.Errorf("%v: its own answer is foreign", api)
		}
		if got, err := relayAgents(answerIDs, api, "leg", Asks{}, true, strings.NewReader(opening)); !got.Foreign || !errors.Is(err, sse.ErrStopped) || got.out.Len() > 0 {
			t.Errorf("%v: another's answer: foreign %t, %v, relayed %q", api, got.Foreign, err, got.out.String())
		}
	}
}

// secretIn says what of a stream's events no client may see, read as clients read them; "" for nothing.
func secretIn(api body.API, stream string) string {
	var secret string
	r := sse.New(io.Discard, nil, sse.Config{MaxEvent: 64 << 20, Observe: func(ev sse.Event) sse.Verdict {
		var event map[string]any
		if json.Unmarshal(ev.Data, &event) != nil {
			return sse.Forward
		}
		if event[ParamsMember] != nil {
			secret = string(ev.Data)
		}
		response, _ := event["response"].(map[string]any)
		for _, name := range []string{ParamsMember, "input_messages", "output_messages"} {
			if api == body.Responses && response[name] != nil {
				secret = string(ev.Data)
			}
		}
		return sse.Forward
	}})
	_ = r.Run(strings.NewReader(stream)) // a string does not fail
	return secret
}

// sameSplit checks that a stream of any bytes hides what is to be hidden, however it arrives.
func sameSplit(t *testing.T, api body.API, text string, restart bool) {
	t.Helper()
	var first *agentStream
	var failed error
	for split, from := range agentSplits(text) {
		answerIDs := &facts.AnswerIDs{}
		got, err := relayAgents(answerIDs, api, "leg", Asks{IDs: true, Hidden: true}, restart, from)
		if secret := secretIn(api, got.out.String()); secret != "" {
			t.Errorf("%s: the client sees %q", split, secret)
		}
		if first == nil {
			first, failed = got, err
		}
		if got.out.String() != first.out.String() || got.ending != first.ending || got.ineligible != first.ineligible || got.Failed != first.Failed || (err == nil) != (failed == nil) {
			t.Errorf("%s: %v, %+v, odd %q, relayed %q\nelsewhere %v, %+v, odd %q, relayed %q", split, err, got.ending, got.ineligible, got.out.String(), failed, first.ending, first.ineligible, first.out.String())
		}
	}
}

func FuzzMessagesStream(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, restart bool) { sameSplit(t, body.Messages, text, restart) })
}

func FuzzResponsesStream(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, restart bool) { sameSplit(t, body.Responses, text, restart) })
}
