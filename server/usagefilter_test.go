package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
)

// requestParts are what differs between two answers to one request.
var requestParts = regexp.MustCompile(`"id":"[a-z-]*[0-9a-f-]+"|"created":[0-9]+|"id":"(chatcmpl-tool|call)[^"]*"`)

// direct asks an instance itself, which is what a client would see without us.
func direct(t *testing.T, sim *vllmsim.Instance, path, request string) string {
	t.Helper()
	request = strings.Replace(request, `"conversation_id":"c",`, "", 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sim.URL()+path, strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The token proof asks decode for ids and for its usage; a client sees what it would have got without that, but for kv_transfer_params: vLLM
// 0.33 has that member in every chunk, null or not, and no client ever gets it.
func TestUsageFilter_ClientSeesWhatAStockEngineSends(t *testing.T) {
	text := `{"model":"m","prompt":"SAY some words of text.","conversation_id":"c","stream":true}`
	chat := func(say, members string) string {
		return fmt.Sprintf(`{"model":"m","conversation_id":"c","stream":true,"messages":[{"role":"user","content":%s}]%s}`, jsonOf(say), members)
	}
	for name, row := range map[string]struct{ path, request string }{
		"plain":        {chatPath, chat("SAY some words.", "")},
		"usage":        {chatPath, chat("SAY some words.", `,"stream_options":{"include_usage":true}`)},
		"steady usage": {chatPath, chat("SAY some words.", `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`)},
		"no usage":     {chatPath, chat("SAY some words.", `,"stream_options":{"include_usage":false,"continuous_usage_stats":true}`)},
		"options":      {chatPath, chat("SAY some words.", `,"stream_options":{}`)},
		"cut":          {chatPath, chat("Talk.", `,"max_tokens":7`)},
		"one token":    {chatPath, chat("Talk.", `,"max_tokens":1`)},
		"nothing":      {chatPath, chat("SAY words.", `,"stop_token_ids":[1]`)},
		"stop string":  {chatPath, chat("SAY one two three.", `,"stop":"two"`)},
		"reasoning":    {chatPath, chat("THINK SAY it.", "")},
		"tool":         {chatPath, chat(`CALL weather {"city": "Paris", "days": 3}`, weatherTool)},
		"ids":          {chatPath, chat("Talk.", `,"return_token_ids":true`)},
		"logprobs":     {chatPath, chat("Talk.", `,"logprobs":true,"top_logprobs":2`)},
		"text":         {textPath, text},
		"text, usage":  {textPath, plus(text, `,"stream_options":{"include_usage":true}`)},
		"text, ids":    {textPath, plus(text, `,"return_token_ids":true,"logprobs":1`)},
	} {
		for _, plugIn := range []bool{false, true} {
			for n := range 4 {
				version, empty := vllmsim.VLLM032, n%2 == 1
				if n > 1 {
					version = vllmsim.VLLM033
				}
				t.Run(fmt.Sprint(name, " ", version, " ", plugIn, " ", empty), func(t *testing.T) {
					r, sims := stock(t, nil, func(c *vllmsim.Config) {
						c.Version, c.Params, c.OutputTokenIDs, c.EmptyDeltas = version, vllmsim.ParamsFinish, plugIn, empty
					})
					want := strings.ReplaceAll(direct(t, sims[1], row.path, row.request), `,"kv_transfer_params":null`, "")
					p := r.sendTo(row.path, row.request)
					r.wantOK(p, "miss;")
					normal := func(s string) string { // without what the usage tells of prefill's caches
						return strings.ReplaceAll(requestParts.ReplaceAllString(s, "_"), `,"prompt_tokens_details":{"cached_tokens":0}`, "")
					}
					if got := normal(p.body); got != normal(want) {
						t.Errorf("got\n%s\nwant\n%s", got, normal(want))
					}
					asked := false
					for _, l := range sims[1].Requests() {
						asked = asked || strings.Contains(string(l.Body), `"kv_transfer_params"`) && strings.Contains(string(l.Body), `"include_usage":true`)
					}
					if !asked {
						t.Error("decode was not asked for its usage")
					}
				})
			}
		}
	}
}

// A finish that was held back is never lost, and never told twice.
func TestUsageFilter_FinishGoesOutOnce(t *testing.T) {
	end := func(events ...string) func(a *idAnswer) []string {
		return func(a *idAnswer) []string {
			all := a.events()
			all = all[:len(all)-1]
			return append(all, events...)
		}
	}
	usage := func(more string) string {
		return `{"id":"cmpl-x","object":"text_completion","choices":[],"usage":{"prompt_tokens":200,"completion_tokens":10}` + more + `}`
	}
	for name, events := range map[string]func(a *idAnswer) []string{
		"no usage":              end("[DONE]"),
		"usage of an old vLLM":  end(usage(""), "[DONE]"),
		"usage":                 end(usage(`,"system_fingerprint":"v"`), "[DONE]"),
		"usage twice":           end(usage(`,"system_fingerprint":"v"`), usage(`,"system_fingerprint":"v"`), "[DONE]"),
		"usage with the params": end(usage(`,"system_fingerprint":"v","kv_transfer_params":{"do_remote_decode":true}`), "[DONE]"),
		"no end":                end(),
		"finish twice": func(a *idAnswer) []string {
			all := a.events()
			return append(all[:len(all)-1], `{"id":"cmpl-x","choices":[{"index":0,"text":"again","finish_reason":"stop"}]}`, "[DONE]")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: byTokens})
			r.prefill[0].always(prefillsIDs)
			r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
				a := answerOf(l)
				a.usage = "" // rows have their own
				say(w, events(a)...)
			})
			p := r.sendIDs("c", true, count(100, 200)...)
			r.wantOK(p, "miss;")
			finishes := strings.Count(p.body, `"finish_reason":"stop"`)
			if want := 1 + strings.Count(name, "finish twice"); finishes != want {
				t.Errorf("got %d finishes, want %d, in\n%s", finishes, want, p.body)
			}
			if strings.Contains(p.body, `"usage"`) {
				t.Errorf("got a usage that the client did not ask for:\n%s", p.body)
			}
			for _, e := range eventsOf(p.body) {
				if !json.Valid([]byte(e)) {
					t.Errorf("event is not JSON: %s", e)
				}
			}
		})
	}
}

// An engine, or a gateway before it, may send the usage before the finish.
func TestUsageFilter_UsageBeforeTheFinish(t *testing.T) {
	for counts, want := range map[int]string{10: "yes", 11: "ineligible_token_count"} {
		r := newRig(t, setup{cfg: byTokens})
		r.prefill[0].always(prefillsIDs)
		r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
			a := answerOf(l)
			a.usage = ""
			all := a.events()
			usage := fmt.Sprintf(`{"id":"cmpl-%s","choices":[],"usage":{"prompt_tokens":200,"completion_tokens":%d}}`, l.id(), counts)
			say(w, slices.Insert(all, len(all)-2, usage)...)
		})
		p := r.sendIDs("c", true, count(100, 200)...)
		r.wantOK(p, "miss;")
		if strings.Contains(p.body, `"usage"`) || strings.Count(p.body, `"finish_reason":"stop"`) != 1 {
			t.Errorf("got\n%s\nwant one finish, and no usage that the client did not ask for", p.body)
		}
		r.wantStored(1, want)
	}
}

// What stands in the place of the finish is as little to be taken back as the finish.
func TestUsageFilter_ErrorBehindTheUsageReachesTheClient(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	r.prefill[0].always(prefillsIDs)
	r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		a := answerOf(l)
		a.told, a.usage = nil, ""
		say(w, a.events()[0], `{"id":"cmpl-`+l.id()+`","choices":[],"usage":{"prompt_tokens":200,"completion_tokens":0},"system_fingerprint":"v"}`)
		<-r.committed
		say(w, `{"error":{"message":"of the engine","type":"x","code":500}}`)
	})
	resp, err := r.open(t.Context(), http.MethodPost, textPath, strings.NewReader(askIDs("c", true, count(100, 200)...)))
	if err != nil {
		t.Fatal(err)
	}
	close(r.committed)
	if p := r.rest(resp); p.err != nil || !strings.Contains(p.body, "of the engine") {
		t.Errorf("got %q, %v; want the engine's error and its end", p.body, p.err)
	}
}

// An engine that tells its usage to every client (--enable-force-include-usage) goes on to.
func TestUsageFilter_ForcedUsageReachesTheClient(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	r.prefill[0].always(prefillsIDs)
	usage := func(n int) string {
		return fmt.Sprintf(`"usage":{"prompt_tokens":200,"total_tokens":%d,"completion_tokens":%d}`, 200+n, n)
	}
	r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		a := answerOf(l)
		a.usage = ""
		events := a.events()
		for i := range outputIDs() {
			events[i] = strings.TrimSuffix(events[i], "}") + "," + usage(i+1) + "}"
		}
		last := len(events) - 1
		say(w, append(events[:last:last], `{"id":"cmpl-`+l.id()+`","choices":[],`+usage(len(outputIDs()))+`}`, "[DONE]")...)
	})
	p := r.sendIDs("c", true, count(100, 200)...)
	r.wantOK(p, "miss;")
	if n := strings.Count(p.body, `"usage"`); n != len(outputIDs())+1 {
		t.Errorf("got usage %d times, want it where the engine put it, in\n%s", n, p.body)
	}
	r.wantStored(1, "yes")
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

const weatherTool = `,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]`
