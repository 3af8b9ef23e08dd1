package engines

import (
	"fmt"
	"strconv"
)

// stream is an answer of events, one event for each write, as vLLM's API server does: the head when the answer begins, the role with the
// first token, each token, the usage if asked for, [DONE], and the end of the body.
type stream struct {
	reply
	asksUsage bool
	pacing

	at     int // number of the next write
	buf    []byte
	textAt int // place of a token's text in buf, 0 if buf holds no such event
}

// The writes of a stream besides its tokens.
const (
	writeHead = iota
	writeRole
	firstToken
)

func (s *stream) more() bool { return s.at <= s.lastWrite() }

// lastWrite returns the number of the write that ends the chunked body, after the tokens, the usage and [DONE].
func (s *stream) lastWrite() int { return firstToken + s.output + 2 }

// waits reports whether the pace delays the next write. The first token comes with the role.
func (s *stream) waits() bool { return s.at > firstToken && s.at < firstToken+s.output }

// next returns the bytes of the next write, valid until the next call.
func (s *stream) next() []byte {
	at := s.at
	s.at++
	switch token := at - firstToken; {
	case at == writeHead:
		s.buf = fmt.Appendf(s.buf[:0], "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: %s\r\ntransfer-encoding: chunked\r\n\r\n", s.requestID)
		return s.buf
	case at == writeRole:
		s.begin(`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":`)
		s.buf = append(append(s.buf, orNull(s.prompt)...), `,"prompt_text":null}`...)
		s.prompt = nil
		return s.event()
	case token < s.output-1:
		return s.token(token)
	case token == s.output-1:
		return s.finishing()
	case token == s.output && !s.asksUsage:
		return s.next()
	case token == s.output:
		s.begin(`"choices":[],"usage":`, s.usage(), "}}", s.vllm.fingerprint(), "}")
		return s.event()
	case token == s.output+1:
		return []byte("e\r\ndata: [DONE]\n\n\r\n")
	default:
		return []byte("0\r\n\r\n")
	}
}

// sizeRoom is the space in front of an event for the size of its chunk.
const sizeRoom = 10

// begin begins an event with the common members and these parts.
func (s *stream) begin(parts ...string) {
	s.textAt = 0
	s.buf = fmt.Appendf(s.buf[:0], `          data: {"id":"chatcmpl-%s","object":"chat.completion.chunk","created":%d,"model":"`+Model+`",`, s.requestID, s.created)
	for _, part := range parts {
		s.buf = append(s.buf, part...)
	}
}

// event ends the event in buf and returns it as a chunk of the body.
func (s *stream) event() []byte {
	s.buf = append(s.buf, "\n\n"...)
	var size [sizeRoom]byte
	text := append(strconv.AppendInt(size[:0], int64(len(s.buf)-sizeRoom), 16), "\r\n"...)
	at := sizeRoom - len(text)
	copy(s.buf[at:], text)
	s.buf = append(s.buf, "\r\n"...)
	return s.buf[at:]
}

// token returns the event of one token that is not the last. If it shows no id, only its four letters differ from the event before.
func (s *stream) token(n int) []byte {
	if s.textAt > 0 {
		s.says.Add(s.buf[:s.textAt], n)
		size := 4 // a size below 256 has two digits, below 4096 three
		if len(s.buf)-sizeRoom-2 >= 256 {
			size = 5
		}
		return s.buf[sizeRoom-size:]
	}
	s.begin(`"choices":[{"index":0,"delta":{"content":"`)
	textAt := len(s.buf)
	s.buf = s.says.Add(s.buf, n)
	id := pieceID(s.buf[textAt:])
	s.buf = append(s.buf, `"},"logprobs":null,"finish_reason":null,"token_ids":`...)
	s.buf = s.shown(s.buf, id)
	if s.vllm == VLLM032 {
		s.buf = append(s.buf, `}]}`...)
	} else {
		s.buf = append(s.buf, `}],"kv_transfer_params":null}`...)
	}
	event := s.event()
	if !s.showIDs {
		s.textAt = textAt
	}
	return event
}

func (s *stream) shown(dst []byte, id uint32) []byte {
	if !s.showIDs {
		return append(dst, "null"...)
	}
	return closed(s.engine.numerals.add(append(dst, '['), id))
}

func (s *stream) finishing() []byte {
	s.begin(`"choices":[{"index":0,"delta":{"content":"`)
	id := uint32(endID)
	if s.finish != "stop" {
		at := len(s.buf)
		s.buf = s.says.Add(s.buf, s.output-1)
		id = pieceID(s.buf[at:])
	}
	s.buf = append(append(s.buf, `"},"logprobs":null,"finish_reason":"`...), s.finish...)
	s.buf = s.shown(append(s.buf, `","stop_reason":null,"token_ids":`...), id)
	if s.vllm != VLLM032 {
		s.buf = append(s.buf, `,"weight_versions":null`...)
	}
	s.buf = append(s.buf, `}]`...)
	if !s.asksUsage {
		s.buf = append(s.buf, s.vllm.fingerprint()...)
	}
	switch {
	case s.holds:
		s.buf = append(s.buf, `,"kv_transfer_params":`...)
		s.buf = s.leave(s.buf)
	case s.vllm != VLLM032:
		s.buf = append(s.buf, `,"kv_transfer_params":null`...)
	}
	s.buf = append(s.buf, '}')
	return s.event()
}
