package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

func buffering(c *server.Config) { c.BufferStreams = true }

// stock makes a rig in front of one simulated engine of each role that sends no params in streams.
func stock(t *testing.T, cfg func(*server.Config), engines func(*vllmsim.Config), more ...func(*server.Deps)) (r *rig, sims []*vllmsim.Instance) {
	t.Helper()
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		c := vllmsim.DefaultConfig()
		c.Model, c.Params = "m", vllmsim.ParamsNever
		if engines != nil {
			engines(&c)
		}
		sim, err := vllmsim.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if s := sim.Stats(); s.CorruptReads != 0 || s.DoubleReads != 0 || s.Poisoned != 0 {
				t.Errorf("%s: got %d corrupt and %d double reads, %d poisoned, want none", role, s.CorruptReads, s.DoubleReads, s.Poisoned)
			}
			if err := sim.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		sims = append(sims, sim)
		instances = append(instances, newInstance(t, role, role.String(), sim.URL()))
	}
	return newRig(t, setup{cfg: cfg, deps: func(d *server.Deps) {
		d.Fleet = newFleet(d.Legs.(*upstream.Client), nil, instances...)
		for _, change := range more {
			change(d)
		}
	}}), sims
}

// told is what a client that knows only the OpenAI API makes of a stream.
type told struct {
	Role, Content, Reasoning, Finish string
	Calls                            []toldCall
	Usage                            map[string]any
	Prompt, IDs                      []int
	Tokens                           []string // of logprobs
}

type toldCall struct {
	Type     string
	Function struct{ Name, Arguments string }
}

// listen reads a stream as OpenAI's clients do: chunks may lack choices or any part of a delta, [DONE] ends it.
func listen(t *testing.T, p reply) (said told) {
	t.Helper()
	if got := p.header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("got content type %q of a stream", got)
	}
	events := strings.Split(p.body, "\n\n")
	if n := len(events); n < 3 || events[n-1] != "" || events[n-2] != "data: [DONE]" {
		t.Fatalf("got %q, want events that end with [DONE]", p.body)
	}
	for _, e := range events[:len(events)-2] {
		var chunk struct {
			Choices []struct {
				Index int
				Text  string
				Delta struct {
					Role, Content, Reasoning string
					Calls                    []struct {
						Index int
						ID    string
						toldCall
					} `json:"tool_calls"`
				}
				Finish   *string `json:"finish_reason"`
				IDs      []int   `json:"token_ids"`
				Prompt   []int   `json:"prompt_token_ids"`
				Logprobs struct {
					Content []struct{ Token string }
					Tokens  []string
				}
			}
			Usage  map[string]any
			Prompt []int `json:"prompt_token_ids"`
		}
		data, isData := strings.CutPrefix(e, "data: ")
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || !isData || strings.Contains(data, "\n") {
			t.Fatalf("got event %q (%v), want one line of data", e, err)
		}
		if said.Finish != "" && len(chunk.Choices) > 0 {
			t.Errorf("got %s after the finish", data)
		}
		said.Prompt = append(said.Prompt, chunk.Prompt...)
		if chunk.Usage != nil {
			said.Usage = chunk.Usage
		}
		for _, c := range chunk.Choices {
			said.Role += c.Delta.Role
			said.Content += c.Text + c.Delta.Content
			said.Reasoning += c.Delta.Reasoning
			for _, call := range c.Delta.Calls {
				if call.Index == len(said.Calls) && call.ID != "" {
					said.Calls = append(said.Calls, toldCall{})
				}
				merged := &said.Calls[call.Index]
				merged.Type += call.Type
				merged.Function.Name += call.Function.Name
				merged.Function.Arguments += call.Function.Arguments
			}
			if c.Finish != nil {
				said.Finish = *c.Finish
			}
			said.IDs, said.Prompt = append(said.IDs, c.IDs...), append(said.Prompt, c.Prompt...)
			said.Tokens = append(said.Tokens, c.Logprobs.Tokens...)
			for _, entry := range c.Logprobs.Content {
				said.Tokens = append(said.Tokens, entry.Token)
			}
		}
	}
	return said
}

// script is a text of some hundred tokens for the simulated model to say.
func script(n int) string {
	return fmt.Sprintf("Answer %d. %s", n, strings.TrimSpace(strings.Repeat("The blocks of a turn are held until the next one reads them. ", 6)))
}

func TestBuffered_StockEngineIsReusedFromTheSecondTurn(t *testing.T) {
	for _, row := range []struct {
		proof    server.ProofMode
		sampling string
		buffered bool
		loads    int // how often prefill reads decode's blocks; its own cache holds what noncanonical output leaves of a ticket
		later    string
	}{
		{server.ProofHistory, vllmsim.SamplingCanonical, true, 3, "hit;"},
		{server.ProofAuto, vllmsim.SamplingCanonical, true, 3, "hit;"},
		{server.ProofAuto, vllmsim.SamplingNoncanonical, true, 0, "hit;"},
		{server.ProofHistory, vllmsim.SamplingCanonical, false, 0, "miss;"},
		{server.ProofAuto, vllmsim.SamplingCanonical, false, 0, "miss;"},
	} {
		t.Run(fmt.Sprintf("%s %s %v", row.proof, row.sampling, row.buffered), func(t *testing.T) {
			r, sims := stock(t, func(c *server.Config) { c.Proof, c.BufferStreams = row.proof, row.buffered },
				func(c *vllmsim.Config) { c.Sampling = row.sampling })
			// The first request with an answer in it shows what the token proof has to know of such requests.
			r.wantOK(r.send(ask("other", false, "a", "b", "c")), "miss;")
			texts, reuse := []string{"SAY " + script(1)}, "miss;reason=first_turn"
			for n := 1; n <= 4; n++ {
				p := r.send(ask("c", true, texts...))
				r.wantOK(p, reuse)
				said := listen(t, p)
				if said.Content != script(n) || said.Role != "assistant" || said.Finish != "stop" {
					t.Errorf("turn %d: got %+v, want %q", n, said, script(n))
				}
				texts, reuse = append(texts, said.Content, "SAY "+script(n+1)), row.later
			}
			if got := sims[0].Stats().Loads; got != row.loads {
				t.Errorf("prefill read decode's blocks %d times, want %d", got, row.loads)
			}
			if n := r.log.count(`"stream":"buffered"`); n != 4 && row.buffered || n != 0 && !row.buffered {
				t.Errorf("got %d turns that say that they were buffered", n)
			}
		})
	}
}

func TestBuffered_TextIsReused(t *testing.T) {
	for _, proof := range []server.ProofMode{server.ProofHistory, server.ProofAuto} {
		r, _ := stock(t, func(c *server.Config) { c.Proof = proof; buffering(c) }, nil)
		words := strings.TrimRight(script(1), ".") // history is continued behind a letter only
		prompt, reuse := "SAY "+words, "miss;reason=first_turn"
		for range 3 {
			quoted, _ := json.Marshal(prompt) // a string always can be
			p := r.sendTo(textPath, fmt.Sprintf(`{"model":"m","prompt":%s,"stream":true,"max_tokens":1000,"conversation_id":"c"}`, quoted))
			r.wantOK(p, reuse)
			prompt += listen(t, p).Content + "\n" + words
			reuse = "hit;"
		}
	}
}

const weatherTool = `,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]`

func plus(request, members string) string { return strings.TrimSuffix(request, "}") + members + "}" }

// A client is told the same by a stream of decode's and by one made of a whole answer.
func TestBuffered_SaysWhatDecodeStreams(t *testing.T) {
	prompt := `{"model":"m","prompt":"SAY some words of text.","stream":true,"conversation_id":"c"}`
	for name, row := range map[string]struct{ path, request string }{
		"plain":         {chatPath, ask("c", true, "SAY a \"quoted\" line\nand \u00e9\U0001F600 <b>.")},
		"nothing":       {chatPath, plus(ask("c", true, "SAY words."), `,"stop_token_ids":[1]`)},
		"usage":         {chatPath, plus(ask("c", true, "Talk."), `,"stream_options":{"include_usage":true}`)},
		"steady usage":  {chatPath, plus(ask("c", true, "Talk."), `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`)},
		"no usage":      {chatPath, plus(ask("c", true, "Talk."), `,"stream_options":{"include_usage":false,"continuous_usage_stats":true}`)},
		"cut":           {chatPath, plus(ask("c", true, "Talk."), `,"max_tokens":7`)},
		"stop string":   {chatPath, plus(ask("c", true, "SAY one two three."), `,"stop":"two"`)},
		"reasoning":     {chatPath, ask("c", true, "THINK SAY it.")},
		"tool":          {chatPath, plus(ask("c", true, `CALL weather {"city": "Paris", "days": 3}`), weatherTool)},
		"ids":           {chatPath, plus(ask("c", true, "Talk."), `,"return_token_ids":true`)},
		"ids of a tool": {chatPath, plus(ask("c", true, `CALL weather {"city": "Paris"}`), weatherTool+`,"return_token_ids":true`)},
		"logprobs":      {chatPath, plus(ask("c", true, "Talk."), `,"logprobs":true,"top_logprobs":2`)},
		"text":          {textPath, prompt},
		"text, all":     {textPath, plus(prompt, `,"logprobs":1,"return_token_ids":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`)},
	} {
		for _, proof := range []server.ProofMode{server.ProofHistory, server.ProofAuto} {
			t.Run(name+" "+string(proof), func(t *testing.T) {
				var says []told
				for _, buffered := range []bool{false, true} {
					r, sims := stock(t, func(c *server.Config) { c.Proof, c.BufferStreams = proof, buffered },
						func(c *vllmsim.Config) { c.PromptTokensDetails = true })
					p := r.sendTo(row.path, row.request)
					r.wantOK(p, "miss;")
					said := listen(t, p)
					if buffered && strings.Contains(p.body, "kv_transfer_params") {
						t.Errorf("params reach the client: %s", p.body)
					}
					legs := slices.DeleteFunc(sims[1].Requests(), func(r vllmsim.RecordedRequest) bool { return r.Path != row.path })
					if whole := !strings.Contains(string(legs[len(legs)-1].Body), `"stream":true`); whole != buffered {
						t.Errorf("buffered %v: got decode leg %s", buffered, legs[len(legs)-1].Body)
					}
					says = append(says, said)
				}
				if !reflect.DeepEqual(says[0], says[1]) {
					t.Errorf("made of a whole answer:\n%+v\nstreamed:\n%+v", says[1], says[0])
				}
			})
		}
	}
}

// shape is JSON in one line with its names, their order and its nulls, but none of its other values.
func shape(t *testing.T, data string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(data))
	var value func() string
	token := func() json.Token {
		tok, err := d.Token()
		if err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		return tok
	}
	value = func() string {
		switch tok := token().(type) {
		case json.Delim:
			var inside []string
			for d.More() {
				name := ""
				if tok == '{' {
					name = fmt.Sprint(token()) + ":"
				}
				inside = append(inside, name+value())
			}
			token()
			if tok == '[' && (len(inside) == 0 || inside[0] == "_") {
				return "[]" // ids may be none
			}
			return fmt.Sprint(tok) + strings.Join(inside, ",")
		case nil:
			return "null"
		}
		return "_"
	}
	return value()
}

// recordedJSON is the body of a recorded answer of vLLM 0.32.
func recordedJSON(t *testing.T, name string) (whole, stream string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "exchanges", "vllm-0.32", name))
	var exchange struct {
		Response struct {
			JSON json.RawMessage
			Text string
		}
	}
	if err == nil {
		err = json.Unmarshal(data, &exchange)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(exchange.Response.JSON), exchange.Response.Text
}

// The chunks made of recorded whole answers have the shapes of recorded chunks.
func TestBuffered_ChunksAreShapedAsRecorded(t *testing.T) {
	for _, row := range []struct {
		whole, stream, path, request string
		chunks                       []int // of the recording, -1 is the last before [DONE]
	}{
		{"02-decode-turn1.json", "05-decode-turn2-stream-stock.json", chatPath, plus(ask("c", true, "q"), `,"return_token_ids":true,"stream_options":{"include_usage":true}`), []int{0, 2, -2, -1}},
		{"12-completions-decode-token-prompt.json", "22-decode-text-stream-own-plugin.json", textPath, `{"model":"m","prompt":"q","stream":true,"conversation_id":"c","return_token_ids":true}`, []int{0, -1}},
	} {
		whole, _ := recordedJSON(t, row.whole)
		_, stream := recordedJSON(t, row.stream)
		r := newRig(t, setup{cfg: buffering})
		r.decode[0].next(body("application/json", whole))
		p := r.sendTo(row.path, row.request)
		r.wantOK(p, "miss;")
		listen(t, p)
		got, recorded := eventsOf(p.body), eventsOf(stream)
		if len(got) != len(row.chunks) {
			t.Fatalf("%s: got %d chunks, want %d", row.whole, len(got), len(row.chunks))
		}
		for i, at := range row.chunks {
			if at < 0 {
				at += len(recorded)
			}
			// Our plug-in is not stock: its params come last in the chunk.
			want, _, _ := strings.Cut(shape(t, recorded[at]), ",kv_transfer_params:")
			if shape(t, got[i]) != want {
				t.Errorf("%s, chunk %d:\n got %s\nwant %s", row.whole, i, shape(t, got[i]), want)
			}
		}
	}
}

// eventsOf are the data of a stream's events, without [DONE].
func eventsOf(stream string) (data []string) {
	for e := range strings.SplitSeq(stream, "\n\n") {
		if e != "" && e != "data: [DONE]" {
			data = append(data, strings.TrimPrefix(e, "data: "))
		}
	}
	return data
}

func TestBuffered_OnlyWhereATicketCanComeOfIt(t *testing.T) {
	for name, row := range map[string]struct {
		request string
		header  []string
		prefill behaviour
		auto    bool
		whole   bool
	}{
		"conversation":    {request: plus(ask("c", true, "q"), `,"stream_options":{"include_usage":true}`), whole: true},
		"no conversation": {request: ask("", true, "q")},
		"off":             {request: ask("c", true, "q"), header: []string{"X-KV-Reuse", "off"}},
		"several choices": {request: plus(ask("c", true, "q"), `,"n":2`)},
		"ineligible":      {request: plus(ask("c", true, "q"), `,"echo":true`)},
		"no hand-over":    {request: ask("c", true, "q"), prefill: body("application/json", `{"id":"x"}`)},
		"no proof":        {request: ask("c", true, "q"), auto: true}, // the scripted engine does not know ids
		"not streamed":    {request: ask("c", false, "q"), whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) {
				buffering(c)
				if row.auto {
					c.Proof = server.ProofAuto
				}
			}})
			if row.auto { // its first legs are the probes
				r.prefill[0].next(status(500, "no"))
				r.decode[0].next(status(500, "no"))
			}
			if row.prefill != nil {
				r.prefill[0].next(row.prefill)
			}
			p := r.send(row.request, row.header...)
			r.wantOK(p, "")
			legs := r.decode[0].seen()
			last := legs[len(legs)-1]
			if last.streams() == row.whole {
				t.Errorf("got decode leg %s, want whole: %v", last.body, row.whole)
			}
			if row.whole && strings.Contains(last.body, "stream_options") {
				t.Errorf("got %s, want no stream_options, which vLLM refuses without stream", last.body)
			}
		})
	}
}

func TestBuffered_FailsWithAStatus(t *testing.T) {
	for name, row := range map[string]struct {
		fails  behaviour
		status int
		code   string
		legs   int
	}{
		"400":                {status(400, "bad"), 400, "invalid_request", 1},
		"KV load fails":      {status(500, "Internal server error"), 502, "decode_failed", 2},
		"hang-up":            {hangUp, 502, "decode_failed", 2},
		"breaks off":         {raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"id\""), 502, "decode_failed", 2},
		"no JSON":            {body("application/json", `{"id":`), 502, "bad_decode_answer", 1},
		"an error":           {body("application/json", `{"error":{"message":"x"},"choices":[{"message":{},"finish_reason":"stop"}]}`), 502, "bad_decode_answer", 1},
		"no choice":          {body("application/json", `{"id":"x","choices":[]}`), 502, "bad_decode_answer", 1},
		"two choices":        {twoChoices, 502, "bad_decode_answer", 1},
		"unfinished":         {body("application/json", `{"choices":[{"message":{"content":"x"},"finish_reason":null}]}`), 502, "bad_decode_answer", 1},
		"not of this API":    {textForChat, 502, "bad_decode_answer", 1},
		"not even an object": {body("application/json", `[1]`), 502, "bad_decode_answer", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: buffering})
			r.decode[0].always(row.fails)
			r.wantError(r.turn("c", 1, true), row.status, row.code)
			if n := len(r.decode[0].seen()); n != row.legs || r.store.Len() != 0 {
				t.Errorf("got %d decode legs and %d conversations, want %d and no ticket", n, r.store.Len(), row.legs)
			}
		})
	}
}

// twoChoices is an answer that was not asked for, with params.
func twoChoices(w http.ResponseWriter, _ *http.Request, l leg) {
	choice := `{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}`
	answerJSON(w, `{"id":"chatcmpl-`+l.id()+`","choices":[`+choice+`,`+choice+`],"kv_transfer_params":`+ticket(l)+`}`)
}

// textForChat is an answer of the other API, with params.
func textForChat(w http.ResponseWriter, _ *http.Request, l leg) {
	answerJSON(w, `{"id":"chatcmpl-`+l.id()+`","choices":[{"index":0,"text":"x","finish_reason":"stop"}],"kv_transfer_params":`+ticket(l)+`}`)
}

func TestBuffered_RefusedAnswerLeavesNoTicket(t *testing.T) {
	r := newRig(t, setup{cfg: buffering})
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
		answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":7,"finish_reason":"stop","stop_reason":null}],"kv_transfer_params":`+ticket(l)+`}`)
	})
	r.wantError(r.sendTo(textPath, `{"model":"m","prompt":"q","stream":true,"conversation_id":"c"}`), 502, "bad_decode_answer")
	if r.store.Len() != 0 {
		t.Error("an answer that was not shown left a ticket")
	}
}

func TestBuffered_RestartedLegIsBufferedToo(t *testing.T) {
	r := newRig(t, setup{cfg: buffering})
	r.decode[0].next(status(500, "Internal server error"))
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;reason=first_turn")
	if said := listen(t, p); said.Content != "Hello world" || said.Finish != "stop" {
		t.Errorf("got %+v, want Hello world", said)
	}
	r.wantOK(r.turn("c", 2, true), "hit;")
}

// An engine that streams all the same is relayed.
func TestBuffered_StreamedAnswerIsRelayed(t *testing.T) {
	r := newRig(t, setup{cfg: buffering})
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, chatEvents(l)...) })
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;")
	if want := chatBytes(r.decode[0].seen()[0]); p.body != want {
		t.Errorf("got\n%s\nwant\n%s", p.body, want)
	}
}

func TestBuffered_PutIsDoneBeforeTheClientSeesAnything(t *testing.T) {
	putting, gate := make(chan struct{}), make(chan struct{})
	seam := &storeSeam{put: func(context.Context) (convcache.Outcome, bool) {
		close(putting)
		<-gate
		return 0, false
	}}
	r := newRig(t, setup{
		cfg:  func(c *server.Config) { buffering(c); c.StoreTimeout = patience },
		deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam },
	})
	headers := make(chan *http.Response, 1)
	go func() {
		resp, err := r.open(context.Background(), http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(1)...)))
		if err != nil {
			t.Error(err)
		}
		headers <- resp
	}()
	<-putting
	var resp *http.Response
	select {
	case resp = <-headers:
		t.Error("the client has some of the answer before the ticket is stored")
	case <-time.After(50 * time.Millisecond): // it would be there in less than one
	}
	close(gate)
	if resp == nil {
		resp = <-headers
	}
	r.wantOK(r.rest(resp), "miss;")
	seam.put = nil
	r.wantOK(r.turn("c", 2, true), "hit;")
}

func TestBuffered_ClientLeavesBeforeTheAnswer(t *testing.T) {
	t.Parallel() // the leg has ten seconds
	l, gate := newLeaver(t), make(chan struct{})
	r := newRig(t, setup{cfg: buffering, front: contexts(l.arrived)})
	r.decode[0].next(waits(gate, func(w http.ResponseWriter, q *http.Request, l leg) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":`))
		_ = http.NewResponseController(w).Flush()
		silent(w, q, l) // until the leg is cancelled
	}))
	done := make(chan reply, 1)
	go func() { done <- r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q"))) }()
	r.decode[0].await(1)
	l.leave()
	l.noticed(t)
	<-done
	close(gate)
	r.decode[0].awaitEnd(1)
	r.until(func() bool { return r.log.count(`"msg":"turn"`, `"status":499`) == 1 })
	if r.store.Len() != 0 {
		t.Error("an answer that was not shown left a ticket")
	}
}

func TestBuffered_ExposedParamsAreOnTheFinishChunk(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { buffering(c); c.ExposeParams = true }})
	p := r.turn("c", 1, true)
	chunks := eventsOf(p.body)
	last := chunks[len(chunks)-1]
	if want := `"kv_transfer_params":` + ticket(r.decode[0].seen()[0]) + `}`; !strings.HasSuffix(last, want) || strings.Count(p.body, "kv_transfer_params") != 1 {
		t.Errorf("got %s, want %s at its end only", p.body, want)
	}
}
