package engines

import (
	"bytes"
	"hash/maphash"

	"carryover/cmd/pdbench/wire"
)

// message is a message of a prompt. Its parts are JSON text without the quotes.
type message struct{ role, text []byte }

// cover describes a prompt up to the end of a message: its numbers of messages and tokens, and a hash of all messages.
type cover struct {
	messages int32
	tokens   int32
	hash     uint64
}

func (c cover) extend(seed maphash.Seed, m message) cover {
	return cover{
		messages: c.messages + 1,
		tokens:   c.tokens + int32(pieces(m.text)) + 2,
		hash:     scatter(c.hash ^ maphash.Bytes(seed, m.text) + uint64(roleID(m.role))),
	}
}

// chatRequest is what engines read of a chat request. Its slices are parts of the body.
type chatRequest struct {
	messages     []message
	covers       []cover // one for each message
	conversation uint64  // the number behind Mark in the first message, 0 without one
	stream       bool
	usage        bool
	options      bool // stream_options are there
	returnIDs    bool
	maxTokens    int // -1 for none
	params       legParams
}

type legParams struct {
	present       bool
	remoteDecode  bool
	remotePrefill bool
	engineID      []byte
	requestID     []byte
	tokens        int    // remote_num_tokens, -1 for none
	blocks        []byte // remote_block_ids, nil for none
	ids           []byte // prompt_token_ids, nil for none
}

// Mark begins the first message of a conversation; its number and a blank follow.
const Mark = "#"

// read reads a body into r and reuses r's slices.
func (r *chatRequest) read(seed maphash.Seed, body []byte) error {
	*r = chatRequest{messages: r.messages[:0], covers: r.covers[:0], maxTokens: -1}
	var list, params, options []byte
	err := wire.EachMember(body, func(name, value []byte) {
		switch string(name) {
		case "messages":
			list = value
		case "kv_transfer_params":
			params = value
		case "stream":
			r.stream = wire.IsTrue(value)
		case "stream_options":
			options = value
		case "max_tokens":
			r.maxTokens = wire.Number(value)
		case "max_completion_tokens": // wins, as in vLLM
			if n := wire.Number(value); n >= 0 {
				r.maxTokens = n
			}
		case "return_token_ids":
			r.returnIDs = wire.IsTrue(value)
		}
	})
	if err == nil && params != nil && string(params) != "null" {
		err = r.params.read(params)
	}
	if err == nil && options != nil && string(options) != "null" {
		r.options = true
		err = wire.EachMember(options, func(name, value []byte) {
			r.usage = r.usage || string(name) == "include_usage" && wire.IsTrue(value)
		})
	}
	if err == nil && list != nil {
		err = r.readMessages(seed, list)
	}
	return err
}

func (r *chatRequest) readMessages(seed maphash.Seed, list []byte) error {
	err := wire.EachElement(list, func(value []byte) error {
		var m message
		err := wire.EachMember(value, func(name, value []byte) {
			switch string(name) {
			case "role":
				m.role = wire.Unquoted(value)
			case "content":
				m.text = wire.Unquoted(value)
			}
		})
		r.messages = append(r.messages, m)
		return err
	})
	var c cover
	for _, m := range r.messages {
		c = c.extend(seed, m)
		r.covers = append(r.covers, c)
	}
	if len(r.messages) > 0 {
		if rest, marked := bytes.CutPrefix(r.messages[0].text, []byte(Mark)); marked {
			digits, _, _ := bytes.Cut(rest[:min(len(rest), 20)], []byte(" "))
			r.conversation = uint64(max(0, wire.Number(digits)))
		}
	}
	return err
}

func (p *legParams) read(object []byte) error {
	*p = legParams{present: true, tokens: -1}
	err := wire.EachMember(object, func(name, value []byte) {
		switch string(name) {
		case "do_remote_decode":
			p.remoteDecode = wire.IsTrue(value)
		case "do_remote_prefill":
			p.remotePrefill = wire.IsTrue(value)
		case "remote_engine_id":
			p.engineID = wire.Unquoted(value)
		case "remote_request_id":
			p.requestID = wire.Unquoted(value)
		case "remote_num_tokens":
			p.tokens = wire.Number(value)
		case "remote_block_ids":
			if value[0] == '[' {
				p.blocks = value
			}
		case "prompt_token_ids":
			if string(value) != "null" {
				p.ids = value
			}
		}
	})
	return err
}

// last returns the cover of the whole prompt, without the role that begins the answer.
func (r *chatRequest) last() cover {
	if len(r.covers) == 0 {
		return cover{}
	}
	return r.covers[len(r.covers)-1]
}

func (r *chatRequest) tokens() int { return int(r.last().tokens) + 1 }

// badIDs reports whether a text is not a list of ids.
func badIDs(ids []byte) bool {
	if len(ids) < 3 || ids[0] != '[' {
		return true
	}
	for _, c := range ids[1 : len(ids)-1] {
		if (c < '0' || c > '9') && c != ',' && c != ' ' {
			return true
		}
	}
	return false
}
