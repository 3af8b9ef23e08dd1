package talk

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Client talks to one proxy.
type Client struct {
	clock Clock
	most  int
	base  string
	http  *http.Client
}

// NewClient returns a client of the proxy at a base URL. most is the most tokens of an answer.
func NewClient(base string, clock Clock, most int) *Client {
	return &Client{clock: clock, most: most, base: base, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 12}}}
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Hold holds all conversations, each from its begin to its end or its first failure. The error is ctx's.
func (c *Client) Hold(ctx context.Context, list []Conversation) (Record, error) {
	var mu sync.Mutex // guards record
	var record Record
	group, ctx := errgroup.WithContext(ctx)
	for _, conversation := range list {
		group.Go(func() error {
			turns := c.hold(ctx, conversation)
			mu.Lock()
			defer mu.Unlock()
			record = append(record, turns...)
			return ctx.Err()
		})
	}
	err := group.Wait()
	return record, err
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (c *Client) hold(ctx context.Context, talk Conversation) (turns Record) {
	messages := []message{{Role: "system", Content: talk.System}}
	if c.clock.Sleep(ctx, talk.Begins) != nil {
		return nil
	}
	before := 0
	for n, q := range talk.Turns {
		if c.clock.Sleep(ctx, q.Think) != nil {
			return turns
		}
		messages = append(messages, message{Role: "user", Content: q.Text})
		turn, answer := c.ask(ctx, talk.ID, messages, c.most)
		turn.Next, turn.Before = n > 0, before
		turn.Wrong = turn.Err == nil && q.Answer != "" && answer.Content != q.Answer
		turns = append(turns, turn)
		if turn.Err != nil {
			return turns
		}
		before = turn.Prompt + turn.Answer
		messages = append(messages, answer)
	}
	return turns
}

// Sizes of the conversations of a warm-up.
const (
	warmClients       = 8
	warmConversations = 12 // of each client
	warmTurns         = 3
	warmTokens        = 4 // of an answer
)

// WarmUp holds short conversations until the proxy knows its engines. The proxy trusts /tokenize after it has agreed once with each prefill
// instance. The first ticket between two instances is a trial, for which other turns wait.
func (c *Client) WarmUp(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for n := range warmClients {
		group.Go(func() error {
			for k := range warmConversations {
				messages := []message{{Role: "system", Content: "You are brief."}}
				for turn := range warmTurns {
					messages = append(messages, message{Role: "user", Content: fmt.Sprintf("Client %d, conversation %d, question %d: %s", n, k, turn, vocabulary)})
					t, answer := c.ask(ctx, fmt.Sprintf("warm-up-%d-%d", n, k), messages, warmTokens)
					if t.Err != nil {
						return fmt.Errorf("warm-up: %w", t.Err)
					}
					messages = append(messages, answer)
				}
			}
			return nil
		})
	}
	return group.Wait()
}
