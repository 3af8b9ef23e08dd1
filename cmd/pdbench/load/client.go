package load

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/wire"
)

// client is one keep-alive connection to a contender or an engine.
type client struct {
	address string
	conn    net.Conn
	wire    *wire.Reader
	used    time.Time
	unwatch func() bool
}

// staleAfter is how long a connection may be idle; uvicorn closes it after five seconds.
const staleAfter = 3 * time.Second

func newClient(base string) *client { return &client{address: strings.TrimPrefix(base, "http://")} }

// send writes a request and reads the head of its answer, which may take limit. The connection breaks when ctx ends.
func (c *client) send(ctx context.Context, request []byte, limit time.Duration) (wire.Head, error) {
	now := time.Now()
	if c.conn != nil && now.Sub(c.used) > staleAfter {
		c.close()
	}
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return wire.Head{}, err
		}
	}
	if err := c.conn.SetDeadline(now.Add(limit)); err != nil {
		return wire.Head{}, fmt.Errorf("send: %w", err)
	}
	if _, err := c.conn.Write(request); err != nil {
		return wire.Head{}, fmt.Errorf("send: %w", err)
	}
	h, err := c.wire.Head()
	if err != nil {
		return h, fmt.Errorf("head: %w", err)
	}
	return h, nil
}

func (c *client) dial(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	c.conn = conn
	c.unwatch = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if c.wire == nil {
		c.wire = wire.NewReader(conn)
	} else {
		c.wire.Reset(conn)
	}
	return nil
}

// ended notes that an answer was read to its end.
func (c *client) ended(h wire.Head) {
	c.used = time.Now()
	if h.Closes {
		c.close()
	}
}

func (c *client) close() {
	if c.conn != nil {
		c.unwatch()
		_ = c.conn.Close()
		c.conn = nil
	}
}

// history is the request of a conversation's next turn: room for a head, and a body that grows with each turn. The members of a leg follow
// the messages.
type history struct {
	buf      []byte
	end      int // of the messages
	messages int
}

const requestRoom = 512

func (h *history) begin() {
	if cap(h.buf) < requestRoom {
		h.buf = make([]byte, requestRoom, 4<<10)
	}
	h.buf = append(h.buf[:requestRoom], `{"model":"`+engines.Model+`","messages":[`...)
	h.end, h.messages = len(h.buf), 0
}

// add begins a message. The caller appends its text to buf, and ends it with said.
func (h *history) add(role string) {
	h.buf = h.buf[:h.end]
	if h.messages > 0 {
		h.buf = append(h.buf, ',')
	}
	h.buf = append(append(append(h.buf, `{"role":"`...), role...), `","content":"`...)
	h.messages++
}

func (h *history) said() {
	h.buf = append(h.buf, `"}`...)
	h.end = len(h.buf)
}

// request returns the request with this tail. It is valid until the history changes.
func (h *history) request(host, id string, tail ...[]byte) []byte {
	h.buf = append(h.buf[:h.end], ']')
	for _, part := range tail {
		h.buf = append(h.buf, part...)
	}
	h.buf = append(h.buf, '}')
	var room [requestRoom]byte
	head := fmt.Appendf(room[:0], "POST "+engines.ChatPath+" HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", host, len(h.buf)-requestRoom)
	if id != "" {
		head = fmt.Appendf(head, "X-Conversation-Id: %s\r\n", id)
	}
	head = append(head, "\r\n"...)
	at := requestRoom - len(head)
	copy(h.buf[at:], head)
	return h.buf[at:]
}
