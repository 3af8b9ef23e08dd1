package upstream

import (
	"bytes"
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

// maxEmptyReads is how many reads in a row may return nothing before a source counts as broken, as in bufio.
const maxEmptyReads = 100

// eventReader reads server-sent events (WHATWG HTML 9.2.6) one by one, however their bytes are split. It returns an
// event as soon as the line that ends it has arrived. It keeps all that it has read, so it suits only the beginning of
// a stream; package sse relays streams.
type eventReader struct {
	from io.Reader
	most int    // limit of bytes that are read
	read []byte // the stream so far; its bytes are never changed
	at   int    // beginning of the next line
	seen int    // the next line does not end before here
	cr   bool   // the last line has ended with a CR, which an LF may follow
	err  error  // why the stream has ended
}

// next returns the data of the next event that has data. It is not to be changed. At the end of the stream an
// incomplete event is dropped, and the error is that of the source; beyond the limit it is ErrAnswerTooLarge.
func (r *eventReader) next() (data []byte, err error) {
	for lines := 0; ; {
		begins := r.at == 0
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if begins {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			if len(data) > 0 {
				return data, nil
			}
			data, lines = nil, 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		switch lines++; lines {
		case 1:
			data = value // a part of read, not a copy
		case 2:
			data = bytes.Join([][]byte{data, value}, []byte("\n"))
		default:
			data = append(append(data, '\n'), value...)
		}
	}
}

// line returns the next line without its end: LF, CRLF or CR. A CR ends its line at once.
func (r *eventReader) line() ([]byte, error) {
	for {
		if r.cr && r.at < len(r.read) {
			if r.cr = false; r.read[r.at] == '\n' {
				r.at++
			}
		}
		from := max(r.at, r.seen)
		if i := bytes.IndexAny(r.read[from:], "\r\n"); i >= 0 {
			line := r.read[r.at : from+i]
			r.at, r.cr = from+i+1, r.read[from+i] == '\r'
			return line, nil
		}
		r.seen = len(r.read)
		if err := r.more(); err != nil {
			return nil, err
		}
	}
}

// more reads more of the source.
func (r *eventReader) more() error {
	if r.err != nil {
		return r.err
	}
	if len(r.read) == r.most {
		return ErrAnswerTooLarge
	}
	if len(r.read) == cap(r.read) {
		// Data that was returned before must not move.
		r.read = append(make([]byte, 0, min(max(usualAnswer, 2*cap(r.read)), r.most)), r.read...)
	}
	for range maxEmptyReads {
		n, err := r.from.Read(r.read[len(r.read):cap(r.read)])
		r.read, r.err = r.read[:len(r.read)+n], err
		switch {
		case n > 0:
			return nil
		case err != nil:
			return err
		}
	}
	return io.ErrNoProgress
}
