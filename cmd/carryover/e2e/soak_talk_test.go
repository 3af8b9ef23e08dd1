package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// The APIs that a talk uses.
const (
	talkChat = "chat"
	talkText = "text"
	talkIDs  = "ids" // text completions whose prompt is a list of ids
)

// person is on the client's side of a random conversation. Everything that they do follows from their seed and from what they are answered.
type person struct {
	id       string
	draw     *rand.Rand
	tools    bool // the model may call tools
	thoughts bool // the client repeats reasoning as history
	parts    bool // contents are lists of parts

	opening   string // the first question, "" for one of their own
	rewritten bool   // the request is not what was sent and answered before, and a new question
}

func (p *person) name() string { return p.id }

func (*person) turns() int { return soakTurns }

// odds is true once in n times.
func (p *person) odds(n int) bool { return p.draw.IntN(n) == 0 }

// question is long enough for prefill to read a turn from decode: it computes fewer than
// 64 missing tokens by itself.
func (p *person) question() string {
	words := strings.Fields(longText(p.draw.IntN(1000)))
	return strings.Join(words[:40+p.draw.IntN(30)], " ")
}

// asks is a question, at the beginning that with which others begin too.
func (p *person) asks() string {
	if text := p.opening; text != "" {
		p.opening = ""
		return text
	}
	return p.question()
}

// talk is a conversation by chats or text completions.
type talk struct {
	person
	api    string
	system bool

	messages speech
	pending  speech // what answers a tool call
	prompt   string
	ids      []int
}

func newTalk(seed uint64, number int) *talk {
	draw := rand.New(rand.NewPCG(seed, uint64(number)))
	k := &talk{person: person{id: fmt.Sprintf("soak-%d-%d", seed, number), draw: draw}, api: talkChat}
	switch draw.IntN(10) {
	case 0:
		k.api = talkText
	case 1:
		k.api = talkIDs
	}
	k.tools, k.thoughts, k.parts, k.system = k.odds(4), k.odds(4), k.odds(8), k.odds(5)
	if k.system {
		k.messages = append(k.messages, encode(map[string]string{"role": "system", "content": "You are patient. " + longText(1)}))
	}
	return k
}

func (*talk) misses(string, int, int) error { return nil }

func (k *talk) again(draw *rand.Rand) voice {
	other := *k
	other.draw, other.messages, other.pending, other.ids = draw, slices.Clone(k.messages), slices.Clone(k.pending), slices.Clone(k.ids)
	return &other
}

func (k *talk) ready(ctx context.Context, s *soak, name string, turn int, named bool) (ask asking, err error) {
	body := k.next(turn)
	right, prompt, output, err := s.right(ctx, k, body)
	return asking{prompt: prompt, output: output, rewritten: k.rewritten, send: func(front *rig) (*answered, error) {
		if named {
			body["conversation_id"] = k.id
		}
		a, err := front.post(ctx, k.path(), k.aside(name), encode(body), unwatched)
		if err != nil {
			return a, err
		}
		if err := same(a, right); err != nil {
			return a, fmt.Errorf("%s, stream %v: %w", a.reuse(), body["stream"], err)
		}
		k.heard(a, output)
		return a, nil
	}}, err
}

func (k *talk) path() string {
	if k.api == talkChat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// next makes the request of the next turn: the history, sometimes rewritten, and
// something new.
func (k *talk) next(turn int) object {
	members := object{"model": "sim", "max_tokens": 24 + 40*k.draw.IntN(2), "stream": k.odds(2), "temperature": 0}
	if k.odds(3) {
		members["stop"] = "never said"
	}
	k.rewritten = false
	switch k.api {
	case talkChat:
		if k.tools {
			members["tools"] = json.RawMessage(`[{"type":"function","function":{"name":"lookup","parameters":{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}}}}}]`)
		}
		if k.rewritten = turn > 2 && k.odds(3); k.rewritten {
			k.rewriteChat()
		} else {
			k.askChat()
		}
		members["messages"] = k.messages
	case talkText:
		if k.rewritten = turn > 2 && k.odds(3); k.rewritten {
			k.prompt = k.rewriteText(k.prompt)
		}
		k.prompt += "\n" + k.asks()
		members["prompt"] = k.prompt
	default:
		if k.rewritten = turn > 2 && k.odds(3); k.rewritten {
			k.ids[k.draw.IntN(len(k.ids))] = 300 + k.draw.IntN(200)
		}
		for range 50 + k.draw.IntN(40) {
			k.ids = append(k.ids, 300+k.draw.IntN(1000))
		}
		members["prompt"] = k.ids
	}
	if members["stream"] == true && k.odds(2) {
		members["stream_options"] = map[string]bool{"include_usage": true}
	}
	return members
}

// aside is what the client says of a turn beside its request: now and then that it takes no part in the conversation, or is its last,
// whatever comes after it.
func (k *talk) aside(name string) http.Header {
	header := http.Header{"X-Request-Id": {name}, "X-Tenant": {k.id}}
	switch k.draw.IntN(16) {
	case 0:
		header.Set("X-Conversation-Task", "title_generation")
	case 1:
		header.Set("X-Conversation-Final", "true")
	}
	return header
}

func (k *talk) askChat() {
	if k.pending != nil {
		k.messages, k.pending = append(k.messages, k.pending...), nil
		return
	}
	text := k.asks()
	switch k.draw.IntN(6) {
	case 0:
		text += " THINK"
	case 1:
		text += " SAY  " + k.question() + ". Grüße, 你好 🙂 \n"
	case 2:
		if k.tools {
			text += fmt.Sprintf(` CALL lookup {"b": %d,   "a":"é %d"}`, k.draw.IntN(9), k.draw.IntN(9))
		}
	}
	k.messages = append(k.messages, k.user(text))
}

func (k *talk) user(text string) json.RawMessage {
	if k.parts {
		return encode(object{"role": "user", "content": []map[string]string{{"type": "text", "text": text}}})
	}
	return encode(map[string]string{"role": "user", "content": text})
}

// rewriteChat does what users and front ends do to a history.
func (k *talk) rewriteChat() {
	k.pending = nil
	users := k.questions()
	switch way := k.draw.IntN(4); {
	case way == 0: // regenerated
		k.messages = slices.Clone(k.messages[:users[len(users)-1]+1])
	case way == 1 || len(users) == 1: // the last turn is asked differently
		k.messages = append(slices.Clone(k.messages[:users[len(users)-1]]), k.user(k.question()))
	case way == 2: // a word of an old message changed
		at := k.draw.IntN(len(k.messages))
		k.messages = slices.Clone(k.messages)
		k.messages[at] = json.RawMessage(k.rewriteText(string(k.messages[at])))
		k.messages = append(k.messages, k.user(k.question()))
	default: // an old exchange dropped
		k.messages = append(slices.Delete(slices.Clone(k.messages), users[0], users[1]), k.user(k.question()))
	}
}

// rewriteText changes one word that every long text has.
func (k *talk) rewriteText(text string) string {
	for _, word := range []string{"patient", "river", "bright", "frozen", "clerk"} {
		if at := strings.LastIndex(text, word); at >= 0 {
			return text[:at] + "other" + text[at+len(word):]
		}
	}
	return text
}

func (k *talk) questions() (at []int) {
	for i, message := range k.messages {
		if strings.Contains(string(message), `"role":"user"`) {
			at = append(at, i)
		}
	}
	return at
}

// heard makes the answer part of the history, as clients do. A tool call that the limit
// has cut is no message that an engine would take.
func (k *talk) heard(a *answered, output []int) {
	a.tools = slices.DeleteFunc(a.tools, func(call *toolCallSeen) bool { return !json.Valid([]byte(call.arguments)) })
	switch k.api {
	case talkText:
		k.prompt += a.content
	case talkIDs:
		k.ids = append(slices.Clone(k.ids), output...)
	default:
		message := object{}
		if err := json.Unmarshal(a.assistant(), &message); err == nil && k.thoughts && a.reasoning != "" {
			message["reasoning"] = a.reasoning
		}
		k.messages = append(slices.Clone(k.messages), encode(message))
		for _, call := range a.tools {
			k.pending = append(k.pending, encode(map[string]string{"role": "tool", "tool_call_id": call.id, "content": "found " + k.question()}))
		}
	}
}
