package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Fetch gets a path of an instance and reads the answer whole. status is 0 if no answer has begun. An answer of more than most bytes is
// ErrAnswerTooLarge; a refused connection is syscall.ECONNREFUSED. A non-empty authorization replaces the client's key.
func (c *Client) Fetch(ctx context.Context, instance *Instance, path, authorization string, most int64) (status int, body []byte, err error) {
	return c.ask(ctx, c.request(http.MethodGet, instance.BaseURL, path, authorization), most, nil)
}

var errURL = errors.New("get: want http://host[:port] with a path, without user and fragment")

// FetchOpen is Fetch for an absolute URL of an engine's side server. Such servers use neither key nor TLS.
func (c *Client) FetchOpen(ctx context.Context, rawURL string, most int64) (status int, body []byte, err error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.User != nil || u.Host == "" || u.Fragment != "" {
		return 0, nil, errURL
	}
	open := Client{http: c.http}
	return open.ask(ctx, open.request(http.MethodGet, u.Scheme+"://"+u.Host, u.RequestURI(), ""), most, nil)
}

// Post sends a small JSON body to a path of an instance and reads the answer whole, into buffer if it fits. The answer may be as long as a prefill
// answer. status, errors and authorization are as in Fetch. After Post returns, only the answer refers to buffer, and nothing to body.
func (c *Client) Post(
	ctx context.Context, instance *Instance, path string, body []byte, authorization string, buffer []byte,
) (status int, answer []byte, err error) {
	q := c.request(http.MethodPost, instance.BaseURL, path, authorization)
	q.Body = [][]byte{body}
	q.add("Content-Type", "application/json")
	if rank := instance.rank(); rank != "" {
		q.add(rankHeader, rank)
	}
	if status, answer, err = c.ask(ctx, q, maxPrefillAnswer, buffer); err != nil {
		err = fmt.Errorf("post %s: %w", path, err)
	}
	return status, answer, err
}

func (c *Client) ask(ctx context.Context, q *outgoing, most int64, buffer []byte) (status int, body []byte, err error) {
	a, err := c.do(ctx, q)
	if err != nil {
		return 0, nil, err
	}
	defer a.Close()
	if body, err = ReadWithin(a, most, buffer, nil); err == nil {
		return a.Status, body, nil
	}
	if ctx.Err() == nil && broke(err) {
		c.tellBroken(q.base())
	}
	return a.Status, nil, err
}

const (
	usualAnswer = 4 << 10
	mostAtOnce  = 1 << 20 // even if the peer announces more
)

// ReadWithin reads r to its end, into buffer if the body fits. It asks room, unless that is nil, for all memory beyond usualAnswer. ErrAnswerTooLarge
// means that limit was reached or room refused; then it returns the bytes read so far and leaves the rest to the caller.
func ReadWithin(r io.Reader, limit int64, buffer []byte, room func(n int64) bool) ([]byte, error) {
	if room == nil {
		room = func(int64) bool { return true }
	}
	announced, need := int64(-1), int64(usualAnswer)
	if r, ok := r.(interface{ Left() int64 }); ok && r.Left() >= 0 {
		announced = r.Left()
		need = min(max(announced, 1), mostAtOnce)
	}
	if announced > limit || need > usualAnswer && !room(need) {
		need, limit = usualAnswer, min(limit, usualAnswer-1)
	}
	body := buffer[:0]
	if need = min(need, limit+1); need > int64(cap(body)) {
		body = make([]byte, 0, need)
	}
	for {
		if len(body) == cap(body) {
			next := 2 * int64(cap(body))
			if announced > int64(cap(body)) { // much of it has come
				next = announced
			}
			if next = min(next, limit+1); !room(next) {
				return body, ErrAnswerTooLarge
			}
			body = append(make([]byte, 0, next), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return body, ErrAnswerTooLarge
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}
