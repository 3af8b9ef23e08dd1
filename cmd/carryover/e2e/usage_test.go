package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// What the usage of an answer tells of caches, against what the prefill instance has counted.

// cachedIn returns how many prompt tokens the prefill instances have had of their own caches and read from decode.
func (r *rig) cachedIn(t *testing.T) int {
	t.Helper()
	return r.bySource(t, "local_cache_hit") + r.bySource(t, fromDecode)
}

// usages are the usage objects of an answer, in order.
func usages(raw []byte) (all []gjson.Result) {
	for _, data := range regexp.MustCompile(`(?m)^(?:data: )?(\{.*\})$`).FindAllSubmatch(raw, -1) {
		for _, at := range []string{"usage", "message.usage", "response.usage"} {
			if u := gjson.GetBytes(data[1], at); u.IsObject() {
				all = append(all, u)
			}
		}
	}
	return all
}

// cachedOf returns the cached tokens that a usage tells, and the prompt's tokens; -1 for what it does not tell.
func cachedOf(usage gjson.Result) (cached, prompt int) {
	number := func(name string) int {
		if n := usage.Get(name); n.Type == gjson.Number {
			return int(n.Int())
		}
		return -1
	}
	switch {
	case usage.Get("prompt_tokens").Exists():
		return number("prompt_tokens_details.cached_tokens"), number("prompt_tokens")
	case usage.Get("total_tokens").Exists():
		return number("input_tokens_details.cached_tokens"), number("input_tokens")
	}
	return number("cache_read_input_tokens"), messagePrompt(usage)
}

// untold replaces in an answer what may differ from an answer whose usage is decode's own.
func untold(raw []byte) string {
	s := string(raw)
	for _, rule := range [][2]string{
		{`"(id|item_id|response_id|signature|call_id|request_id)":"[^"]*"`, `"$1":"…"`},
		{`"id":"[^"]*"`, `"id":"…"`},
		{`"created":\d+`, `"created":0`},
		{`"created_at":\d+`, `"created_at":0`},
		{`"completed_at":\d+`, `"completed_at":0`},
		{`,"prompt_tokens_details":\{"cached_tokens":\d+\}(\})`, `$1`},
		{`"prompt_tokens_details":\{"cached_tokens":\d+\}`, `"prompt_tokens_details":null`},
		{`"cached_tokens":\d+`, `"cached_tokens":0`},
		{`,"cache_read_input_tokens":\d+`, ``},
		{`"input_tokens":\d+,"output_tokens":`, `"input_tokens":0,"output_tokens":`},
	} {
		s = regexp.MustCompile(rule[0]).ReplaceAllString(s, rule[1])
	}
	return s
}

// An answer's usage tells what prefill had in its caches or read from decode, on hits, on turns whose prompt prefill's own cache had, and on
// misses. What else is in an answer: TestUsageFilter_ClientSeesWhatAStockEngineSends.
func TestUsage_TellsWhatPrefillHad(t *testing.T) {
	t.Parallel()
	for _, details := range []bool{true, false} {
		for _, kind := range []string{"chat", "text", pathMessages, pathResponses} {
			t.Run(fmt.Sprintf("details %v/%s", details, strings.TrimPrefix(kind, "/v1/")), func(t *testing.T) {
				t.Parallel()
				r := startAgents(t, fmt.Sprintf(`{"prompt_tokens_details":%t}`, details))
				r.toldTurns(t, "chat", false, true) // the first request with an answer in it shows what the token proof has to know of such requests
				for _, stream := range []bool{true, false} {
					for _, continuous := range []bool{true, false} {
						if continuous && (!stream || strings.HasPrefix(kind, "/")) {
							continue
						}
						for turn, told := range r.toldTurns(t, kind, stream, continuous) {
							told.check(t, turn, stream)
						}
					}
				}
			})
		}
	}
}

// toldUsage is an answer, and how many tokens of its prompt prefill has had in caches by its own counters.
type toldUsage struct {
	raw    []byte
	reuse  string
	cached int
}

// check compares every usage of the answer with what prefill has counted.
func (a toldUsage) check(t *testing.T, turn int, stream bool) {
	t.Helper()
	all := usages(a.raw)
	if len(all) == 0 {
		t.Errorf("turn %d has no usage: %s", turn+1, a.raw)
	}
	_, whole := cachedOf(all[len(all)-1])
	for _, usage := range all {
		if cached, prompt := cachedOf(usage); cached != a.cached || prompt != whole || cached > prompt {
			t.Errorf("turn %d, stream %v: usage %s of a prompt of %d tokens, of which prefill has had %d", turn+1, stream, usage.Raw, whole, a.cached)
		}
	}
	want := []string{"miss;reason=first_turn", "hit;", "hit;", fmt.Sprintf("prefix;tokens=%d;reason=first_turn", a.cached)}[turn]
	if !strings.HasPrefix(a.reuse, want) {
		t.Errorf("turn %d: X-KV-Reuse %q, want %s", turn+1, a.reuse, want)
	}
}

// toldTurns holds a conversation of three turns, and the first of another that begins with the same prompt.
func (r *rig) toldTurns(t *testing.T, kind string, stream, continuous bool) (all []toldUsage) {
	t.Helper()
	salt := fmt.Sprint(kind, stream, continuous)
	var history []any
	prompt := ""
	for turn := range 4 {
		id := "a"
		if turn == 3 {
			id, history, prompt = "b", nil, ""
		}
		ask := fmt.Sprintf("%s %d", longText(turn%3), turn%3)
		history, prompt = append(history, map[string]string{"role": "user", "content": ask}), prompt+ask
		body := object{"model": "sim", "stream": stream, "cache_salt": salt, "conversation_id": id + salt, "max_tokens": 100}
		if stream && !strings.HasPrefix(kind, "/") {
			body["stream_options"] = map[string]bool{"include_usage": true, "continuous_usage_stats": continuous}
		}
		path, header := kind, http.Header{"X-Conversation-Id": {id + salt}}
		switch kind {
		case "chat":
			path, body["messages"] = "/v1/chat/completions", history
		case "text":
			path, body["prompt"] = "/v1/completions", prompt
		case pathMessages:
			body["messages"] = history
		case pathResponses:
			delete(body, "max_tokens")
			body["input"], body["max_output_tokens"] = history, 100
		}
		if strings.HasPrefix(kind, "/") {
			delete(body, "conversation_id")
		}
		before := r.cachedIn(t)
		agent, err := r.askAgent(t.Context(), path, header, body)
		a := agent.answered
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("turn %d: %v: %.600s", turn+1, err, a.raw)
		}
		said := a.content
		for _, part := range agent.parts {
			said += textIn(part)
		}
		history, prompt = append(history, map[string]string{"role": "assistant", "content": said}), prompt+said
		all = append(all, toldUsage{a.raw, a.reuse(), r.cachedIn(t) - before})
	}
	return all
}

// textIn is the text of a block, or of an output item.
func textIn(part object) (text string) {
	if s, ok := part["text"].(string); ok {
		return s
	}
	content, _ := part["content"].([]any)
	for _, piece := range content {
		if piece, ok := piece.(object); ok {
			text += textIn(piece)
		}
	}
	return text
}
