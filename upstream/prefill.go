package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
	"carryover/upstream/http1"
)

// maxPrefillAnswer allows for params of 1 MiB and the ids of a prompt of a million tokens.
const maxPrefillAnswer = 16 << 20

// answerLimit bounds the reading of a prefill answer whose headers have arrived.
const answerLimit = 10 * time.Second

// Prefill runs a prefill leg and reads its answer whole. Errors are *LegError; the context's cause tells which time
// limit ended the leg. Once headers have arrived, the end of ctx does not end the leg any more: prefill then holds
// blocks for decode, and only its answer says how to read them.
func (c *Client) Prefill(ctx context.Context, leg Leg) (PrefillAnswer, error) {
	resp, err := c.send(ctx, &leg, nil)
	if err != nil {
		return PrefillAnswer{}, err
	}
	defer resp.Close()
	if err := resp.Detach(); err != nil {
		return PrefillAnswer{}, leg.failure(ctx, Gone, err)
	}
	body, err := readInTime(resp, answerLimit)
	if err != nil {
		kind := Broken
		switch {
		case errors.Is(err, ErrAnswerTooLarge):
			kind = Garbage
		case errors.Is(err, ErrPrefillTimeout):
			kind = Timeout
		}
		return PrefillAnswer{}, leg.failed(kind, err)
	}
	return leg.readAnswer(body)
}

// readInTime reads the body of an answer within a limit. Mostly all of it has arrived with the header.
func readInTime(body *http1.Response, within time.Duration) ([]byte, error) {
	if body.Here() {
		return ReadAll(body, maxPrefillAnswer)
	}
	var late atomic.Bool
	limit := time.AfterFunc(within, func() {
		late.Store(true)
		_ = body.Close()
	})
	defer limit.Stop()
	read, err := ReadAll(body, maxPrefillAnswer)
	if err != nil && late.Load() {
		err = ErrPrefillTimeout
	}
	return read, err
}

// PrefillAnswer is the answer of a prefill leg. Its slices are parts of Body and must not be changed.
type PrefillAnswer struct {
	// ID is the answer's id, see AnswerID.
	ID string
	// Params is the raw value of kv_transfer_params, nil if absent or null.
	Params []byte
	// PromptIDs is the raw list of the ids of the prompt that prefill computed, nil if the answer has no list:
	// prompt_token_ids of the answer for chat, of its first choice for text, the tokens of input_messages for a
	// response.
	PromptIDs []byte
	// PromptTokens is the number of the prompt's tokens (usage.prompt_tokens), 0 if the answer does not tell.
	PromptTokens int
	// Cached is how many of them prefill took from caches (usage.prompt_tokens_details.cached_tokens), -1 if the
	// answer does not tell. vLLM tells it only with --enable-prompt-tokens-details, and in a stream only at the end.
	Cached int
	// Body is the whole answer, one JSON object; for HandBack it is that of the event.
	Body []byte
}

// errNoObject says that a prefill answer is not a JSON object.
var errNoObject = errors.New("answer is not a JSON object")

// readAnswer parses a prefill answer and validates it in the same pass: with the ids of a prompt of 8,000 tokens an
// answer has 50 kB. Of members with equal names the last counts.
func (l Leg) readAnswer(raw []byte) (PrefillAnswer, error) {
	answer, failed := PrefillAnswer{Body: raw, Cached: -1}, []byte(nil)
	s := rawjson.Scanner{Data: raw}
	s.Space()
	err := s.Members(func(m rawjson.Member) (err error) {
		if l.API == body.Text && m.Named("choices") {
			answer.PromptIDs, err = firstPromptIDs(&s)
			return err
		}
		if err := s.Skip(); err != nil {
			return err
		}
		switch value := raw[m.Value:s.Pos]; {
		case m.Named("id"):
			answer.ID = AnswerID(value)
		case m.Named("kv_transfer_params"):
			answer.Params = value
			if rawjson.IsNull(value) {
				answer.Params = nil
			}
		case l.API == body.Chat && m.Named("prompt_token_ids"):
			answer.PromptIDs = list(value)
		case l.API == body.Responses && m.Named("input_messages"):
			answer.PromptIDs = RawMessageIDs(value)
		case m.Named("usage"):
			answer.PromptTokens, answer.Cached = promptUsage(l.API, value)
		case m.Named("error"):
			failed = value
		}
		return nil
	})
	if err != nil || !s.End() {
		return PrefillAnswer{}, l.failed(Garbage, errNoObject)
	}
	if !rawjson.IsNull(failed) {
		e := l.failed(Status, nil)
		e.Status = http.StatusInternalServerError
		e.Fault = ReadFault([]byte(`{"error":` + string(failed) + `}`))
		return PrefillAnswer{}, e
	}
	return answer, nil
}

// AnswerID returns the id of an answer, "" if it has none. An id that is no text stands for itself: it can't be the leg's.
func AnswerID(raw []byte) string {
	if id, ok := rawjson.Text(raw); ok || rawjson.IsNull(raw) {
		return id
	}
	return string(raw)
}

// promptUsage returns how many tokens the prompt has by a usage object, 0 if it does not tell, and how many of them were
// cached, -1 if it does not tell. On Messages the prompt is the sum of three counts (an/serving.py, vLLM 0.32).
func promptUsage(api body.API, raw []byte) (prompt, cached int) {
	count := func(path ...string) int {
		if n, ok := rawjson.GetInt(raw, path...); ok && n >= 0 {
			return n
		}
		return -1
	}
	switch api {
	case body.Messages:
		cached = count("cache_read_input_tokens")
		return max(0, count("input_tokens")) + max(0, cached) + max(0, count("cache_creation_input_tokens")), cached
	case body.Responses:
		return max(0, count("input_tokens")), count("input_tokens_details", "cached_tokens")
	}
	return max(0, count("prompt_tokens")), count("prompt_tokens_details", "cached_tokens")
}

// firstPromptIDs parses choices and returns the list of prompt ids of the first one, nil if there is none.
func firstPromptIDs(s *rawjson.Scanner) (ids []byte, err error) {
	if s.Peek() != '[' {
		return nil, s.Skip()
	}
	first := true
	err = s.Elements(func() (err error) {
		if !first || s.Peek() != '{' {
			err = s.Skip()
		} else {
			ids, err = promptIDs(s)
		}
		first = false
		return err
	})
	return ids, err
}

// promptIDs parses a choice and returns its list of prompt ids, nil if there is none.
func promptIDs(s *rawjson.Scanner) (ids []byte, err error) {
	err = s.Members(func(m rawjson.Member) error {
		err := s.Skip()
		if err == nil && m.Named("prompt_token_ids") {
			ids = list(s.Data[m.Value:s.Pos])
		}
		return err
	})
	return ids, err
}

// list returns a value that is an array, nil for any other.
func list(raw []byte) []byte {
	if rawjson.Kind(raw) != '[' {
		return nil
	}
	return raw
}

// RawMessageIDs returns the raw list of ids in input_messages or output_messages of a response, nil if there is none.
// These lists have one item with ids (type raw_message_tokens, re/serving.py) for one piece of text.
func RawMessageIDs(messages []byte) []byte {
	item, more := rawjson.First(messages)
	if more || rawjson.GetText(item, "type") != "raw_message_tokens" {
		return nil
	}
	return list(rawjson.Get(item, "tokens"))
}
