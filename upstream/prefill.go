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

const answerLimit = 10 * time.Second

// Prefill runs a prefill leg and reads its answer whole. Errors are *LegError; the context's cause names the time limit
// that ended the leg. Once headers have arrived, the end of ctx does not end the leg: prefill then holds blocks for
// decode, and only its answer says how to read them.
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
		return PrefillAnswer{}, leg.failed(KindOf(err), err)
	}
	return c.inStep(leg.readAnswer(body))
}

// inStep drops all idle connections if an answer belongs to another request: some connection is out of step then.
func (c *Client) inStep(answer PrefillAnswer, err error) (PrefillAnswer, error) {
	if errors.Is(err, ErrForeign) {
		c.Close()
	}
	return answer, err
}

// readInTime reads the body of an answer within a limit. Mostly all of it has arrived with the header.
func readInTime(body *http1.Response, within time.Duration) ([]byte, error) {
	if body.Here() {
		return ReadWithin(body, maxPrefillAnswer, nil, nil)
	}
	var late atomic.Bool
	limit := time.AfterFunc(within, func() {
		late.Store(true)
		_ = body.Close()
	})
	defer limit.Stop()
	read, err := ReadWithin(body, maxPrefillAnswer, nil, nil)
	if err != nil && late.Load() {
		err = ErrPrefillTimeout
	}
	return read, err
}

// PrefillAnswer is the answer of a prefill leg. Its slices are parts of Body and must not be changed.
type PrefillAnswer struct {
	ID string
	// Params is the raw value of kv_transfer_params, nil if absent or null.
	Params []byte
	// PromptIDs is the raw list of ids of the computed prompt, nil if there is none: prompt_token_ids of the answer for
	// chat, of its first choice for text, the tokens of input_messages for a response.
	PromptIDs []byte
	// PromptTokens is usage.prompt_tokens, 0 if absent.
	PromptTokens int
	// Cached is how many prompt tokens prefill took from caches (usage.prompt_tokens_details.cached_tokens), -1 if absent.
	// vLLM tells it only with --enable-prompt-tokens-details, and in a stream only at the end.
	Cached int
	// Body is the whole answer, one JSON object; for HandBack the event's data.
	Body []byte
}

var errNoObject = errors.New("answer is not a JSON object")

// readAnswer parses and validates a prefill answer in one pass: with the ids of 8,000 tokens it has 50 kB. The last of
// members with equal names counts.
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
	if l.AnswerIDs != nil && l.AnswerIDs.Foreign(l.RequestID, answer.ID) {
		return PrefillAnswer{}, l.failed(Broken, ErrForeign)
	}
	return answer, nil
}

// AnswerID returns the id of an answer, "" for none. An id that is no text is returned raw: it can't be the leg's.
func AnswerID(raw []byte) string {
	if id, ok := rawjson.Text(raw); ok || rawjson.IsNull(raw) {
		return id
	}
	return string(raw)
}

// promptUsage returns the prompt's tokens, 0 if absent, and the cached ones, -1 if absent. On Messages the prompt is the
// sum of three counts (an/serving.py, vLLM 0.32).
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

func list(raw []byte) []byte {
	if rawjson.Kind(raw) != '[' {
		return nil
	}
	return raw
}

// RawMessageIDs returns the raw list of ids in input_messages or output_messages of a response, nil for none. These lists
// have one item with ids (type raw_message_tokens, re/serving.py) for one piece of text.
func RawMessageIDs(messages []byte) []byte {
	item, more := rawjson.First(messages)
	if more || rawjson.GetText(item, "type") != "raw_message_tokens" {
		return nil
	}
	return list(rawjson.Get(item, "tokens"))
}
