package engines

import (
	"bytes"
	"net"
	"strconv"
	"syscall"
	"time"

	"carryover/cmd/pdbench/wire"
)

type connection struct {
	net.Conn
	engine  *engine
	socket  syscall.RawConn
	wire    *wire.Reader
	request chatRequest
	pending *stream // the pacer writes it
}

// serve serves a connection until its peer or the engine closes it.
func (e *engine) serve(tcp *net.TCPConn) {
	socket, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	c := &connection{Conn: tcp, engine: e, socket: socket, wire: wire.NewReader(tcp)}
	for {
		h, err := c.wire.Head()
		if c.pending != nil {
			if err != nil {
				c.pending.end(!c.pending.last.Load()) // its reader has gone
			}
			<-c.pending.done
			c.pending = nil
		}
		if err != nil || c.handle(h) != nil || h.Closes && c.pending == nil {
			return
		}
	}
}

// handle answers one request; the pacer may finish a stream.
func (c *connection) handle(h wire.Head) error {
	method, rest, _ := bytes.Cut(h.Line, []byte(" "))
	path, _, _ := bytes.Cut(rest, []byte(" "))
	chat := string(method) == "POST" && string(path) == ChatPath
	route := ""
	if !chat {
		route = string(method) + " " + string(path)
	}
	requestID := bytes.Clone(h.RequestID)
	if len(requestID) == 0 || len(requestID) > headRoom/2 {
		requestID = strconv.AppendUint([]byte("own-"), c.engine.serial.Add(1), 10)
	}
	body := c.engine.scratches.get()
	text, err := c.wire.Body(*body)
	*body = text
	if err == nil && !chat {
		room := c.engine.scratches.get()
		*room = append(*room, make([]byte, headRoom)...)
		_, err = c.Write(c.engine.other(route, text, requestID, &c.request, room))
		c.engine.scratches.give(room)
	}
	if err != nil || !chat {
		c.engine.scratches.give(body)
		return err
	}
	answer, s := c.read(text, requestID)
	c.engine.scratches.give(body) // before the answer, which may take minutes
	if s != nil {
		return c.stream(s)
	}
	return c.whole(answer)
}

// ready is an answer without a stream.
type ready struct {
	message []byte
	buffer  *[]byte       // memory of message, nil if it has its own
	after   time.Duration // time that the tokens take
	counted bool          // the ledger counts the request as open
}

func (c *connection) read(body, requestID []byte) (ready, *stream) {
	e, r := c.engine, &c.request
	if err := r.read(e.seed, body); err != nil {
		return ready{message: refusal("400 Bad Request", "BadRequestError", `"messages"`, 400, err.Error(), requestID)}, nil
	}
	ids := r.params.ids
	wrong := ids != nil && !e.rendered.same(ids, r)
	if wrong && badIDs(ids) {
		return ready{message: refusal("400 Bad Request", "BadRequestError", `"kv_transfer_params.prompt_token_ids"`, 400,
			"`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers. (parameter=kv_transfer_params.prompt_token_ids)",
			requestID)}, nil
	}
	e.ledger.begin()
	if wrong {
		e.ledger.wrongIDs()
	}
	p := e.pace.Load()
	if !e.decodes {
		return e.prefill(r, requestID), nil
	}
	e.ledger.decode(r, e.peer)
	answer := e.reply(r, requestID, p)
	if r.stream {
		return ready{}, &stream{reply: answer, asksUsage: r.usage, pacing: pacing{socket: c.socket, pace: p, done: make(chan struct{})}}
	}
	out := e.scratches.get()
	*out = answer.message(*out)
	return ready{message: respond(*out, "200 OK", jsonMedia, requestID), buffer: out, after: p.Gap * time.Duration(answer.output-1), counted: true}, nil
}

func (e *engine) prefill(r *chatRequest, requestID []byte) ready {
	cached, kept := e.ledger.prefill(r, e.peer)
	a := whole{created: time.Now().Unix(), requestID: requestID, finish: "length", tokens: r.tokens(), output: 1, cached: cached}
	a.text = AnswerTo(r.conversation, len(r.messages)).Add(nil, 0)
	prompt, params, out := e.scratches.get(), e.scratches.get(), e.scratches.get()
	if r.returnIDs {
		*prompt = e.rendered.prompt(*prompt, r)
		a.prompt, a.ids = *prompt, closed(e.numerals.text([]byte("["), a.text))
	}
	*params = e.appendParams(*params, requestID, &kept, cached, nil)
	a.params = *params
	*out = a.append(append(*out, make([]byte, headRoom)...))
	e.scratches.give(prompt)
	e.scratches.give(params)
	return ready{message: respond(*out, "200 OK", jsonMedia, requestID), buffer: out, counted: true}
}

// whole writes an answer in one piece, after the time that its tokens take.
func (c *connection) whole(a ready) error {
	if a.after > 0 {
		timer := time.NewTimer(a.after)
		select {
		case <-timer.C:
		case <-c.engine.closing:
			timer.Stop()
		}
	}
	_, err := c.Write(a.message)
	if a.buffer != nil {
		c.engine.scratches.give(a.buffer)
	}
	if a.counted {
		c.engine.ledger.end(err != nil)
	}
	return err
}

// stream writes what needs no wait, and leaves the rest to the pacer.
func (c *connection) stream(s *stream) error {
	for s.more() {
		if s.pace.Gap > 0 && s.waits() {
			c.pending = s
			c.engine.pacer.pace(s)
			return nil
		}
		if _, err := c.Write(s.next()); err != nil {
			s.end(true)
			return err
		}
	}
	s.end(false)
	return nil
}
