package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carryover/server"
	"carryover/upstream/vllmsim"
)

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
		{server.ProofHistory, vllmsim.SamplingCanonical, false, 0, "prefix;"},
		{server.ProofAuto, vllmsim.SamplingCanonical, false, 0, "prefix;"},
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
		"echo":          {textPath, plus(prompt, `,"echo":true`)},
		"text, all":     {textPath, plus(prompt, `,"logprobs":1,"return_token_ids":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`)},
	} {
		for _, proof := range []server.ProofMode{server.ProofHistory, server.ProofAuto} {
			t.Run(name+" "+string(proof), func(t *testing.T) {
				var says []told
				for _, buffered := range []bool{false, true} {
					r, sims := stock(t, func(c *server.Config) { c.Proof, c.BufferStreams, c.Release = proof, buffered, true },
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
		r.decode[0].next(replyBody("application/json", whole))
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

func TestBuffered_ExposedParamsAreOnTheFinishChunk(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { buffering(c); c.ExposeParams = true }})
	p := r.turn("c", 1, true)
	chunks := eventsOf(p.body)
	last := chunks[len(chunks)-1]
	if want := `"kv_transfer_params":` + ticket(r.decode[0].seen()[0]) + `}`; !strings.HasSuffix(last, want) || strings.Count(p.body, "kv_transfer_params") != 1 {
		t.Errorf("got %s, want %s at its end only", p.body, want)
	}
}
