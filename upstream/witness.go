package upstream

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// Witness shows that the process which wrote an answer still runs: a connection to its address was open before the
// answer was written, and its peer has not ended it since. Without one, another process may answer by now, under the
// same address and engine id. The zero value never stands.
type Witness struct {
	all     *connections
	address string
	number  uint64
}

// Stands reports whether there is such a connection. It does not wait; the system call on it takes a microsecond.
func (w Witness) Stands() bool { return w.all != nil && w.all.stands(w.address, w.number) }

// FetchWitnessed is Fetch that also returns the witness of the answer's process.
func (c *Client) FetchWitnessed(
	ctx context.Context, instance *Instance, path, authorization string, most int64,
) (status int, body []byte, witness Witness, err error) {
	address := instance.Authority()
	q := c.request(http.MethodGet, instance.BaseURL, path, authorization)
	q.Connected = func(net.Conn) { witness = c.open.now(address) }
	status, body, err = c.ask(ctx, q, most, nil)
	return status, body, witness, err
}

type connections struct {
	mu     sync.Mutex         // guards the rest
	opened uint64             // the number of the latest connection
	at     map[string][]*conn // the oldest first
}

func newConnections() *connections { return &connections{at: map[string][]*conn{}} }

func (c *connections) now(address string) Witness {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Witness{c, address, c.opened}
}

func (c *connections) add(opened *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	opened.number = c.opened
	c.at[opened.address] = append(c.at[opened.address], opened)
}

// remove does nothing the second time.
func (c *connections) remove(open *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.at[open.address]
	if i := slices.Index(all, open); i >= 0 {
		all = slices.Delete(all, i, i+1)
	}
	if c.at[open.address] = all; len(all) == 0 {
		delete(c.at, open.address)
	}
}

// stands reports whether the peer of an open connection with that number or a lower one has not ended it. The oldest is
// asked first: it serves the longest stream, or will be the next one that is found ended.
func (c *connections) stands(address string, number uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, open := range c.at[address] {
		if open.number > number {
			return false
		}
		if _, ended := open.look(); !ended {
			return true
		}
	}
	return false
}
