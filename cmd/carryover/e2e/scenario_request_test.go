package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// history is what a client would send again: messages, or the text of a prompt.
type history struct {
	messages speech
	prompt   string
}

func (h *history) clone() *history {
	return &history{messages: slices.Clone(h.messages), prompt: h.prompt}
}

// request is one turn made ready.
type request struct {
	step   step
	from   *history // what the answer will be appended to
	body   []byte
	header http.Header
	id     string
	script string // what the answer must say, "" if that is open
}

// prepare builds the request of a step and makes its question part of the branch.
func (p *play) prepare(t *testing.T, s step) request {
	t.Helper()
	h := p.branches[s.Turn]
	if s.Fork != "" {
		h = p.branches[s.Fork].clone()
	}
	if h == nil {
		h = &history{}
	}
	p.branches[s.Turn] = h
	h.rewrite(s)
	p.asked++
	r := request{step: s, from: h, header: http.Header{}, id: fmt.Sprintf("turn-%d", p.asked)}
	ask := s.Ask
	if ask == "" {
		ask = "auto"
	}
	if p.scenario.API == "text" {
		r.script = h.askText(ask, p.asked)
	} else {
		r.script = h.askChat(ask, s.Tell, p.asked)
	}
	if s.Reply != "" {
		r.script = strings.TrimSuffix(s.Reply, "any")
	}
	for name, value := range s.Header {
		r.header.Set(name, value)
	}
	r.header.Set("X-Request-Id", r.id)
	r.body = p.body(s, h)
	return r
}

// rewrite changes what has been said before.
func (h *history) rewrite(s step) {
	if s.Cut > 0 {
		h.messages = h.messages[:min(s.Cut, len(h.messages))]
		h.prompt = h.prompt[:min(s.Cut, len(h.prompt))]
	}
	for at, message := range s.Edit {
		h.messages[at] = json.RawMessage(message)
	}
	if len(s.Swap) == 2 {
		a, b := s.Swap[0], s.Swap[1]
		h.messages[a], h.messages[b] = h.messages[b], h.messages[a]
	}
	for _, at := range slices.Backward(s.Drop) {
		h.messages = slices.Delete(h.messages, at, at+1)
	}
}

// askChat appends a question and returns what the simulated model will say.
func (h *history) askChat(ask, tell string, n int) (script string) {
	switch {
	case tell != "":
		for _, message := range gjson.Parse(tell).Array() {
			h.messages = append(h.messages, json.RawMessage(message.Raw))
		}
		return ""
	case ask == "none":
		return ""
	case ask == "auto":
		script = longText(n) + "."
		ask = "SAY " + script
	default:
		ask = expanded(ask, n)
		_, script, _ = strings.Cut(ask, "SAY ")
	}
	h.messages = append(h.messages, encode(map[string]string{"role": "user", "content": ask}))
	return script
}

// expanded puts several of LMCache's chunks before what is asked behind the word "long".
func expanded(ask string, n int) string {
	if rest, long := strings.CutPrefix(ask, "long"); long {
		return longAsk(n, rest)
	}
	return ask
}

// askText goes on with the prompt behind white space: no pre-tokeniser merges across
// such a border. A model that is told to SAY something says all that follows.
func (h *history) askText(ask string, n int) (script string) {
	switch {
	case ask == "none":
	case ask == "auto" && h.prompt == "":
		h.prompt = "SAY  " + longText(n)
	case ask == "auto":
		h.prompt += "\n" + longText(n)
	default:
		h.prompt += expanded(ask, n)
	}
	_, script, _ = strings.Cut(h.prompt, "SAY ")
	return script
}

// longText is long enough for prefill to read it from decode: it computes fewer than
// 64 missing tokens by itself.
func longText(n int) string {
	words := strings.Fields("every quiet river carries the bright letter before morning and another patient sailor measures one frozen bridge while our humble clerk remembers that empty tower again")
	said := []string{"Entry", strconv.Itoa(n), "says", "that"}
	for i := range 70 {
		said = append(said, words[(i*5+n*(i%7+1))%len(words)])
	}
	return strings.Join(said, " ")
}

// body is the JSON of a request. Later members replace earlier ones in place; all keep
// the spelling and the order that the file gives them.
func (p *play) body(s step, h *history) []byte {
	var order []string
	members := map[string][]byte{}
	set := func(name string, raw []byte) {
		if members[name] == nil {
			order = append(order, name)
		}
		members[name] = raw
	}
	set("model", encode("sim"))
	if p.scenario.API == "text" {
		set("prompt", encode(h.prompt))
	} else {
		said := []byte("[")
		for _, message := range h.messages {
			said = append(append(said, message...), ',')
		}
		set("messages", append(bytes.TrimSuffix(said, []byte(",")), ']'))
	}
	set("temperature", encode(0))
	set("max_tokens", encode(2000))
	set("stream", encode(p.stream))
	if s.Conversation != "none" {
		set("conversation_id", encode(cmp.Or(s.Conversation, "main")))
	}
	if s.IDs > 0 {
		set("prompt", encode(manyIDs(0, s.IDs)))
	}
	for _, extra := range []string{p.scenario.Body, s.Body} {
		gjson.Parse(extra).ForEach(func(key, value gjson.Result) bool {
			set(key.String(), []byte(value.Raw))
			return true
		})
	}
	body := []byte("{")
	for _, name := range order {
		if !slices.Contains(s.Omit, name) {
			body = fmt.Appendf(body, "%s:%s,", encode(name), members[name])
		}
	}
	return append(bytes.TrimSuffix(body, []byte(",")), '}')
}

func (p *play) path() string {
	if p.scenario.API == "text" {
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}
