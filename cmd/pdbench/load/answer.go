package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/wire"
)

// expected is what the engines answer to a turn, and what a client must not see.
type expected struct {
	says   engines.AnswerText
	chunks int
	hides  bool
}

var (
	errParams  = errors.New("the client can see kv_transfer_params or token ids")
	errText    = errors.New("the answer is not what the engine has sent")
	errUnended = errors.New("the stream ends without [DONE]")
)

// answer checks the events of one stream as they come, and keeps their text.
type answer struct {
	expected
	text   []byte // as delivered
	params []byte // decode's, if they are visible
	events int    // without [DONE]
	done   bool
	carry  []byte // an incomplete event
}

func (a *answer) begin(e expected) {
	a.expected = e
	a.text, a.params, a.carry = a.text[:0], a.params[:0], a.carry[:0]
	a.events, a.done = 0, false
}

// take checks the bytes that have arrived, and returns how many token events they complete.
func (a *answer) take(part []byte) (chunks int, err error) {
	if len(a.carry) > 0 {
		a.carry = append(a.carry, part...)
		part = a.carry
	}
	for {
		end := bytes.Index(part, []byte("\n\n"))
		if end < 0 {
			break
		}
		token, err := a.event(part[:end])
		if err != nil {
			return chunks, err
		}
		if token {
			chunks++
		}
		part = part[end+2:]
	}
	a.carry = append(a.carry[:0], part...) // part may be the end of carry: append copies forward
	return chunks, nil
}

// event checks one event, and reports whether it is a token's.
func (a *answer) event(event []byte) (token bool, err error) {
	data, found := bytes.CutPrefix(event, []byte("data: "))
	switch {
	case !found || a.done:
		return false, errText
	case string(data) == "[DONE]":
		a.done = true
		if a.events != a.chunks+1 {
			return false, errText
		}
		return false, nil
	}
	a.events++
	if a.events == 1 {
		if !bytes.Contains(data, []byte(`"role":"assistant"`)) {
			return false, errText
		}
		return false, a.hidden(data)
	}
	n := a.events - 2 // number of the token
	at := bytes.Index(data, []byte(`"content":"`))
	if at < 0 || n >= a.chunks {
		return false, errText
	}
	said := data[at+len(`"content":"`):]
	before := len(a.text)
	if n < a.chunks-1 {
		a.text = a.says.Add(a.text, n)
	} else if !bytes.Contains(said, []byte(`"finish_reason":"stop"`)) {
		return false, errText
	} else if at := bytes.Index(said, []byte(`"kv_transfer_params":`)); at >= 0 {
		at += len(`"kv_transfer_params":`)
		end, err := wire.SkipValue(said, at)
		if err != nil {
			return false, err
		}
		if value := said[at:end]; string(value) != "null" {
			a.params = append(a.params[:0], value...)
		}
	}
	want := a.text[before:]
	if !bytes.HasPrefix(said, want) || len(said) == len(want) || said[len(want)] != '"' {
		return false, errText
	}
	return true, a.hidden(data)
}

// hidden returns an error if a client sees what it must not see.
func (a *answer) hidden(data []byte) error {
	if a.hides && (bytes.Contains(data, []byte("kv_transfer_params")) || bytes.Contains(data, []byte(`token_ids":[`))) {
		return errParams
	}
	return nil
}

func (a *answer) whole(body []byte) error {
	a.text = a.says.Whole(a.text[:0], a.chunks-1)
	content := append(append([]byte(`"content":"`), a.text...), '"')
	if !bytes.Contains(body, content) || !bytes.Contains(body, []byte(`"finish_reason":"stop"`)) {
		return errText
	}
	params, err := paramsOf(body)
	if a.hides && (params != nil || bytes.Contains(body, []byte(`token_ids":[`))) {
		return errParams
	}
	a.params = append(a.params[:0], params...)
	return err
}

func paramsOf(body []byte) ([]byte, error) {
	var params []byte
	err := wire.EachMember(body, func(name, value []byte) {
		if string(name) == "kv_transfer_params" && string(value) != "null" {
			params = value
		}
	})
	return params, err
}

// follow reads a stream to its end, and calls got with the number of chunks of each read.
func (a *answer) follow(w *wire.Reader, got func(chunks int, now time.Time)) error {
	for {
		part, err := w.Piece()
		if errors.Is(err, io.EOF) {
			if !a.done {
				return errUnended
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		now := time.Now()
		chunks, err := a.take(part)
		got(chunks, now)
		if err != nil {
			return err
		}
	}
}
