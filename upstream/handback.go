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

// An answer with status 200 hands nothing back for these reasons.
var (
	errNoStream = errors.New("the answer to a hand-back is no event stream")
	errNoChoice = errors.New("the stream has ended before a choice")
)

// HandBack runs a leg that a connector's HandBack or Release has made. It reads the stream up to the first event with a choice and then
// drops the connection, whatever becomes of ctx. Prefill sends that event when it has read the KV and computed the first token. The leg
// asks for more tokens only to keep the request alive until it is dropped: prefill keeps the blocks of a finished request for its lease of
// 30 s, and frees an aborted one's blocks within 0.05 to 0.5 s (measured on vLLM 0.32). An answer that is complete by then is read to its
// end.
//
// The returned answer is that event: id, ids and number of the prompt's tokens, and the number of cached ones. Errors are *LegError. An
// error event counts as status 500, whatever its code: vLLM reports a missing ticket so. Until the first event is complete (16 MiB at
// most), the leg ends with ctx; the context's cause names the time limit.
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
	if err != nil && LegOf(err) == nil {
		err = leg.failure(ctx, Broken, wireError(Broken, err))
	}
	return c.inStep(answer, err)
}

// firstChoice returns the first event with a choice. A *LegError is a fault that the stream reports; other errors come from reading.
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

// eventReader reads server-sent events (WHATWG HTML 9.2.6) one by one, however their bytes are split. It returns an event when the line
// that ends it has arrived; package sse relays streams.
type eventReader struct {
	lines *bufio.Scanner
	from  *io.LimitedReader
	begun bool
}

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

// next returns the data of the next event that has data. It drops an incomplete event at the end of the stream and returns the source's
// error; beyond the limit that is ErrAnswerTooLarge.
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
