//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// model is what scripts/vllm-cpu calls its model; blockSize is its --block-size.
const (
	model     = "tiny"
	blockSize = 32
)

// turnLimit ends a request that hangs; a turn takes 0.1 to 0.5 s on two idle cores, several seconds on busy ones.
const turnLimit = 90 * time.Second

// asked is a request of the suite, before it is made one of a conversation or of none.
type asked struct {
	path string
	body object
}

func (a asked) stream() bool { return a.body["stream"] == true }

// streaming is the request for a stream that ends with its usage.
func (a asked) streaming() asked {
	return a.with(object{"stream": true, "stream_options": object{"include_usage": true}})
}

// with is the request with some members set otherwise.
func (a asked) with(members object) asked {
	body := maps.Clone(a.body)
	maps.Copy(body, members)
	return asked{a.path, body}
}

// lone is the request alone: no conversation, and a salt that keeps it away from everything cached.
func (a asked) lone() asked {
	a = a.with(object{"cache_salt": rand.Text()})
	delete(a.body, "conversation_id")
	return a
}

// plain is the request straight to an engine, which may use what it has cached.
func (a asked) plain() asked {
	a = a.with(nil)
	delete(a.body, "conversation_id")
	return a
}

// said is what must be equal in all answers.
type said struct {
	text                           string
	finish                         string
	promptTokens, completionTokens int
}

// told is an answer.
type told struct {
	said
	status int
	ids    []int  // of the output, where the request asked for them
	cached int    // prompt_tokens_details.cached_tokens, -1 if not told
	params []byte // kv_transfer_params, which Carryover never shows
	reuse  reuse
	fault  string // error body or event, or what broke the answer off
	took   time.Duration
}

// right says whether an answer is whole and says what it must, by the ids too where they were asked for.
func (a told) right(want told) bool {
	return a.status == http.StatusOK && a.fault == "" && a.params == nil && a.said == want.said && slices.Equal(a.ids, want.ids)
}

// wantRight reports an answer that is not, and what it was to.
func (a told) wantRight(t *testing.T, want told, what string, args ...any) {
	t.Helper()
	if !a.right(want) {
		t.Errorf("%s:\n got %s\nwant %s", fmt.Sprintf(what, args...), a, want)
	}
}

func (a told) String() string {
	if a.fault != "" {
		return fmt.Sprintf("status %d, fault %q after %q", a.status, a.fault, a.text)
	}
	return fmt.Sprintf("%q, %s, %d+%d tokens, ids %v, params %s", a.text, a.finish, a.promptTokens, a.completionTokens, a.ids, a.params)
}

// reuse is X-KV-Reuse.
type reuse struct {
	text      string
	outcome   string // "hit", "prefix", "miss" …
	hit       bool
	tokens    int
	read      int // by prefill of decode, beyond its own
	confirmed int // -1 if prefill did not tell
	proof     string
	reason    string
}

func parseReuse(text string) reuse {
	r := reuse{text: text, confirmed: -1}
	for i, field := range strings.Split(text, ";") {
		name, value, _ := strings.Cut(field, "=")
		n, _ := strconv.Atoi(value) // fields that are no numbers are not read as such
		switch {
		case i == 0:
			r.outcome, r.hit = field, field == "hit"
		case name == "tokens" && r.hit:
			r.tokens = n
		case name == "read":
			r.read = n
		case name == "confirmed":
			r.confirmed = n
		case name == "proof":
			r.proof = value
		case name == "reason":
			r.reason = value
		}
	}
	return r
}

// post asks and reads the answer to its end, however it ends. Only a request that got no status is an error.
func post(t *testing.T, client *http.Client, base string, a asked) (told, error) {
	t.Helper()
	return postWith(t, client, base, a, nil)
}

// postWith is post with more headers.
func postWith(t *testing.T, client *http.Client, base string, a asked, header http.Header) (told, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), turnLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+a.path, bytes.NewReader(encode(a.body)))
	if err != nil {
		return told{}, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return told{took: time.Since(began)}, err
	}
	defer resp.Body.Close()
	raw, broken := io.ReadAll(resp.Body)
	answer := told{status: resp.StatusCode, cached: -1, reuse: parseReuse(resp.Header.Get("X-KV-Reuse")), took: time.Since(began)}
	switch {
	case resp.StatusCode != http.StatusOK:
		answer.fault = string(raw)
	case a.stream():
		answer.readStream(string(raw))
	default:
		answer.read(raw)
	}
	if broken != nil {
		answer.fault += " broken off: " + broken.Error()
	}
	return answer, nil
}

// ask is post for requests that must be answered.
func ask(t *testing.T, client *http.Client, base string, a asked) told {
	t.Helper()
	answer, err := post(t, client, base, a)
	if err != nil {
		t.Fatalf("POST %s%s: %v", base, a.path, err)
	}
	return answer
}

func (a *told) readStream(raw string) {
	done := false
	for event := range strings.SplitSeq(raw, "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		switch {
		case strings.TrimSpace(event) == "":
		case !ok || done:
			a.fault += fmt.Sprintf("unexpected event %q", event)
		case data == "[DONE]":
			done = true
		default:
			a.read([]byte(data))
		}
	}
	if !done && a.fault == "" {
		a.fault = "the stream ends without [DONE]"
	}
}

// read adds a whole answer or one event of a stream.
func (a *told) read(raw []byte) {
	type content struct {
		Content string `json:"content"`
	}
	var object struct {
		Error   json.RawMessage `json:"error"`
		Params  json.RawMessage `json:"kv_transfer_params"`
		Choices []struct {
			Message, Delta content
			Text           string
			FinishReason   string `json:"finish_reason"`
			TokenIDs       []int  `json:"token_ids"`
		}
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		a.fault += fmt.Sprintf("%v in %q", err, raw)
		return
	}
	if object.Error != nil {
		a.fault += string(object.Error)
	}
	if string(object.Params) != "null" {
		a.params = append(a.params, object.Params...)
	}
	for _, choice := range object.Choices {
		a.text += choice.Message.Content + choice.Delta.Content + choice.Text
		a.finish += choice.FinishReason
		a.ids = append(a.ids, choice.TokenIDs...)
	}
	if usage := object.Usage; usage != nil {
		a.promptTokens, a.completionTokens = usage.Prompt, usage.Completion
		if usage.Details != nil && usage.Details.Cached != nil {
			a.cached = *usage.Details.Cached
		}
	}
}

// tokenize returns the ids of a prompt: messages for chat, a text otherwise.
func (e *engine) tokenize(t *testing.T, prompt object) []int {
	t.Helper()
	body := encode(asked{body: object{"model": model}}.with(prompt).body)
	resp, err := e.client.Post(e.url+"/tokenize", "application/json", bytes.NewReader(body))
	noError(t, err)
	defer resp.Body.Close()
	var answer struct{ Tokens []int }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Tokens) == 0 {
		t.Fatalf("tokenize: status %d, %d tokens, %v", resp.StatusCode, len(answer.Tokens), err)
	}
	return answer.Tokens
}
