package upstream

import (
	"net/http"
	"strconv"
	"time"
)

// ClientConfig configures a Client.
type ClientConfig struct {
	// DialTimeout bounds the connection set-up of each leg.
	DialTimeout time.Duration
	// Key is sent to every engine as a bearer token, unless the leg brings its
	// own authorization. Empty sends none.
	Key string
}

// Client sends legs to instances. It is safe for concurrent use.
type Client struct {
	http *http.Client
	key  string
}

// NewClient returns a client; Close releases its idle connections.
func NewClient(cfg ClientConfig) *Client {
	return &Client{
		key: cfg.Key,
		http: &http.Client{
			Transport:     newTransport(cfg.DialTimeout),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close drops idle connections. The client can still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// headers sets the allow-list that every request to an engine carries. Nothing is
// copied from a client's request.
func (c *Client) headers(req *http.Request, authorization string) {
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "carryover")
	switch {
	case authorization != "":
		req.Header.Set("Authorization", authorization)
	case c.key != "":
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
}

// rankHeader names the data-parallel rank that is to compute a request (vLLM #24945).
const rankHeader = "X-data-parallel-rank"

// rank names the data-parallel rank that is to compute the request (vLLM #24945). Without it vLLM's own balancer picks one, and
// KV that one rank holds is unknown to the others.
func (i *Instance) rank(req *http.Request) {
	if i.Ranked {
		req.Header.Set(rankHeader, strconv.Itoa(i.Rank))
	}
}
