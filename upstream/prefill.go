package upstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"carryover/sse/rawjson"
)

// maxPrefillAnswer holds params of 1 MiB and the ids of a prompt of a million tokens.
const maxPrefillAnswer = 16 << 20

// PrefillAnswer is what a prefill leg gave.
type PrefillAnswer struct {
	// ID is the answer's id, "" if it has none.
	ID string
	// Params is the raw value of kv_transfer_params, nil if absent or null.
	Params []byte
	// PromptIDs is the raw id list of the prompt that prefill computed
	// (prompt_token_ids of the answer for chat, of its first choice for text), nil
	// if the answer has no list there.
	PromptIDs []byte
	// PromptTokens is how many tokens the prompt has (usage.prompt_tokens), 0 if the answer does not tell.
	PromptTokens int
	// Body is the whole answer, one JSON object.
	Body []byte
}

// answerLimit bounds the reading of a prefill answer whose headers have arrived.
const answerLimit = 10 * time.Second

// Prefill runs a prefill leg and reads its answer whole. Errors are *LegError;
// the context's cause tells which time limit ended the leg. Once headers have
// arrived the end of ctx stops nothing any more: prefill holds blocks for decode
// by then, and with its answer they can be read.
func (c *Client) Prefill(ctx context.Context, leg Leg) (PrefillAnswer, error) {
	if ctx.Err() != nil {
		// AfterFunc below would find that out too late to send nothing.
		return PrefillAnswer{}, leg.failure(ctx, Dial, ctx.Err())
	}
	parent := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	defer cancel(nil)
	stop := context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	resp, err := c.send(ctx, leg, nil)
	stop()
	if err != nil {
		return PrefillAnswer{}, err
	}
	defer resp.body.Close()
	limit := time.AfterFunc(answerLimit, func() { cancel(ErrPrefillTimeout) })
	defer limit.Stop()
	body, err := ReadAll(resp.body, maxPrefillAnswer)
	if err != nil {
		kind := Broken
		if errors.Is(err, ErrAnswerTooLarge) {
			kind = Garbage
		}
		return PrefillAnswer{}, leg.failure(ctx, kind, err)
	}
	return leg.readAnswer(ctx, body)
}

// readAnswer reads what is wanted of a prefill answer.
func (l Leg) readAnswer(ctx context.Context, body []byte) (PrefillAnswer, error) {
	if !rawjson.Valid(body) || !gjson.ParseBytes(body).IsObject() {
		return PrefillAnswer{}, l.failure(ctx, Garbage, errors.New("answer is not a JSON object"))
	}
	answer := PrefillAnswer{Body: body}
	var failed gjson.Result
	gjson.ParseBytes(body).ForEach(func(key, value gjson.Result) bool {
		switch key.String() {
		case "id":
			answer.ID = value.String()
		case "kv_transfer_params":
			answer.Params = nil
			if value.Type != gjson.Null {
				answer.Params = []byte(value.Raw)
			}
		case "prompt_token_ids":
			if l.API == Chat && value.IsArray() {
				answer.PromptIDs = []byte(value.Raw)
			}
		case "choices":
			if ids := value.Get("0.prompt_token_ids"); l.API == Text && ids.IsArray() {
				answer.PromptIDs = []byte(ids.Raw)
			}
		case "usage":
			answer.PromptTokens = max(0, int(value.Get("prompt_tokens").Int()))
		case "error":
			failed = value
		}
		return true
	})
	if failed.Exists() && failed.Type != gjson.Null {
		e := l.failure(ctx, Status, nil)
		e.Status = http.StatusInternalServerError
		e.Fault = ReadFault([]byte(`{"error":` + failed.Raw + `}`))
		return PrefillAnswer{}, e
	}
	return answer, nil
}
