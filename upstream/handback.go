package upstream

import (
	"bufio"
	"bytes"
	"cmp"
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
	events := newEventReader(stream, maxPrefillAnswer)
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
		if choice, _ := rawjson.First(rawjson.Get(data, "choices")); choice != nil {
			return answer, nil
		}
	}
}

// eventReader reads server-sent events (WHATWG HTML 9.2.6) one by one, however their bytes are split. It returns an
// event as soon as the line that ends it has arrived; package sse relays streams.
type eventReader struct {
	lines *bufio.Scanner
	from  *io.LimitedReader
	begun bool // a line has been read
}

// newEventReader reads at most so many bytes of a stream.
func newEventReader(stream io.Reader, most int) *eventReader {
	from := &io.LimitedReader{R: stream, N: int64(most)}
	r := &eventReader{lines: bufio.NewScanner(from), from: from}
	r.lines.Buffer(make([]byte, 0, usualAnswer), most+1)
	seen, cr := 0, false // no line ends in what was seen; the last line has ended with a CR, which an LF may follow
	r.lines.Split(func(data []byte, _ bool) (advance int, line []byte, err error) {
		begin := 0
		if cr && len(data) > 0 && data[0] == '\n' {
			begin = 1
		}
		i := bytes.IndexAny(data[max(begin, seen):], "\r\n")
		if i < 0 {
			seen = len(data)
			return 0, nil, nil
		}
		end := max(begin, seen) + i
		seen, cr = 0, data[end] == '\r'
		return end + 1, data[begin:end], nil
	})
	return r
}

// next returns the data of the next event that has data. At the end of the stream an incomplete event is dropped, and the error is that of
// the source; beyond the limit it is ErrAnswerTooLarge.
func (e *eventReader) next() (data []byte, err error) {
	for lines := 0; e.lines.Scan(); {
		line := e.lines.Bytes()
		if !e.begun {
			line, e.begun = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")), true
		}
		if len(line) == 0 {
			if len(data) > 0 {
				return data, nil
			}
			lines = 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if lines++; lines > 1 {
			data = append(data, '\n')
		}
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
	}
	if e.from.N == 0 {
		return nil, ErrAnswerTooLarge
	}
	return nil, cmp.Or(e.lines.Err(), io.EOF)
}
