package upstream

import (
	"context"
	"errors"
	"io"

	"carryover/sse/rawjson"
)

// Why an answer with status 200 hands nothing back.
var (
	errNoStream = errors.New("the answer to a hand-back is no event stream")
	errNoChoice = errors.New("the stream has ended before a choice")
)

// HandBack runs a leg that a connector's HandBack or Release has made. It reads the stream up to the first event that
// has a choice, and then drops the connection, whatever becomes of ctx. That event comes when prefill has read the KV
// and computed the first token. More tokens are asked for only to keep the request alive until it is dropped: prefill
// keeps the blocks of a request that ends by itself for its lease of 30 s, and frees those of an aborted one within
// 0.05 to 0.5 s (measured on vLLM 0.32). An answer that is over by then is read to its end; nothing is left to drop.
//
// The returned answer is that event: id, ids and number of the prompt's tokens, and how many of these were cached.
// Errors are *LegError. An error event counts as status 500, whatever code it names: that is how vLLM reports a ticket
// that is gone. Until the first event is complete, which may take 16 MiB at most, the leg ends with ctx; the context's
// cause tells which time limit that was.
func (c *Client) HandBack(ctx context.Context, leg Leg) (PrefillAnswer, error) {
	if ctx.Err() != nil {
		// The transport would notice it too late to send nothing.
		return PrefillAnswer{}, leg.failure(ctx, Dial, ctx.Err())
	}
	resp, err := c.send(ctx, &leg, nil)
	if err != nil {
		return PrefillAnswer{}, err
	}
	defer resp.Close()
	if mediaType(resp.ContentType) != "text/event-stream" {
		return PrefillAnswer{}, leg.failed(Garbage, errNoStream)
	}
	answer, err := leg.firstChoice(resp)
	if err == nil {
		return answer, nil
	}
	if said, ok := errors.AsType[*LegError](err); ok {
		return PrefillAnswer{}, said
	}
	return PrefillAnswer{}, leg.failure(ctx, Broken, wireError(Broken, err))
}

// firstChoice reads a stream up to the first event that has a choice and returns its content. A *LegError is a fault
// that the stream itself reports; other errors are those of reading it.
func (l Leg) firstChoice(stream io.Reader) (PrefillAnswer, error) {
	events := eventReader{from: stream, most: maxPrefillAnswer}
	for {
		data, err := events.next()
		switch {
		case errors.Is(err, ErrAnswerTooLarge):
			return PrefillAnswer{}, l.failed(Garbage, err)
		case err == io.EOF || err == nil && string(data) == "[DONE]": //nolint:errorlint // a clean end is io.EOF itself
			return PrefillAnswer{}, l.failed(Garbage, errNoChoice)
		case err != nil:
			return PrefillAnswer{}, err
		}
		answer, err := l.readAnswer(data)
		if err != nil {
			return PrefillAnswer{}, err
		}
		if hasChoice(data) {
			return answer, nil
		}
	}
}

// hasChoice reports whether an event that was parsed before has a choice.
func hasChoice(event []byte) bool {
	first, _ := rawjson.First(rawjson.Get(event, "choices"))
	return first != nil
}
