package upstream

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
)

// Bounds of what is read from an engine besides a decode stream.
const (
	// maxPrefillAnswer holds params of 1 MiB and the ids of a prompt of a
	// million tokens.
	maxPrefillAnswer = 16 << 20
	maxErrorBody     = 64 << 10
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

// Leg is one upstream call of a turn.
type Leg struct {
	Instance *Instance
	API      API
	// Body is the complete JSON body. It is released as soon as it is written.
	Body []byte
	// RequestID becomes X-Request-Id; vLLM builds the response id and
	// remote_request_id from it.
	RequestID string
	// Authorization replaces the client's configured key when not empty.
	Authorization string
}

// PrefillAnswer is what a prefill leg gave.
type PrefillAnswer struct {
	// ID is the answer's id, "" if it has none.
	ID string
	// Params is the raw value of kv_transfer_params, nil if absent or null.
	Params []byte
	// Usage is the raw value of usage, nil if absent.
	Usage []byte
	// PromptIDs is the raw id list of the prompt that prefill computed
	// (prompt_token_ids of the answer for chat, of its first choice for text), nil
	// if the answer has no list there.
	PromptIDs []byte
}

// answerLimit bounds the reading of a prefill answer whose headers have arrived.
const answerLimit = 10 * time.Second

// Prefill runs a prefill leg and reads its answer whole. Errors are *LegError;
// the context's cause tells which time limit ended the leg. Once headers have
// arrived the end of ctx stops nothing any more: prefill holds blocks for decode
// by then, and whoever has the answer can have them read.
func (c *Client) Prefill(ctx context.Context, leg Leg) (PrefillAnswer, error) {
	if ctx.Err() != nil {
		// AfterFunc below would find that out too late to send nothing.
		return PrefillAnswer{}, leg.failure(ctx, Dial, ctx.Err())
	}
	parent := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	defer cancel(nil)
	stop := context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	resp, err := c.do(ctx, leg)
	stop()
	if err != nil {
		return PrefillAnswer{}, err
	}
	defer resp.Body.Close()
	limit := time.AfterFunc(answerLimit, func() { cancel(ErrPrefillTimeout) })
	defer limit.Stop()
	body, err := ReadAll(resp.Body, maxPrefillAnswer)
	if err != nil {
		kind := Broken
		if errors.Is(err, ErrAnswerTooLarge) {
			kind = Garbage
		}
		return PrefillAnswer{}, leg.failure(ctx, kind, err)
	}
	if !ValidJSON(body) || !gjson.ParseBytes(body).IsObject() {
		return PrefillAnswer{}, leg.failure(ctx, Garbage, errors.New("answer is not a JSON object"))
	}
	var answer PrefillAnswer
	var failed gjson.Result
	gjson.ParseBytes(body).ForEach(func(key, value gjson.Result) bool {
		switch key.String() {
		case "id":
			answer.ID = value.String()
		case "kv_transfer_params":
			answer.Params = nil
			if value.Type != gjson.Null {
				answer.Params = []byte(value.Raw)
			}
		case "usage":
			answer.Usage = []byte(value.Raw)
		case "prompt_token_ids":
			if leg.API == Chat && value.IsArray() {
				answer.PromptIDs = []byte(value.Raw)
			}
		case "choices":
			if ids := value.Get("0.prompt_token_ids"); leg.API == Text && ids.IsArray() {
				answer.PromptIDs = []byte(ids.Raw)
			}
		case "error":
			failed = value
		}
		return true
	})
	if failed.Exists() && failed.Type != gjson.Null {
		e := leg.failure(ctx, Status, nil)
		e.Status = http.StatusInternalServerError
		e.Fault = ReadFault([]byte(`{"error":` + failed.Raw + `}`))
		return PrefillAnswer{}, e
	}
	return answer, nil
}

// Decode runs a decode leg up to its response headers. The caller reads and
// closes the body; only answers with status 200 and no content coding are
// returned. Errors are *LegError.
func (c *Client) Decode(ctx context.Context, leg Leg) (*http.Response, error) {
	return c.do(ctx, leg)
}

// do sends a leg and returns its response if it is usable.
func (c *Client) do(ctx context.Context, leg Leg) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	body := &legBody{rest: leg.Body}
	size := int64(len(leg.Body))
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost,
		leg.Instance.BaseURL+leg.API.Path(), body)
	if err != nil {
		return nil, leg.failure(ctx, Dial, err)
	}
	// No GetBody: net/http must not be able to repeat what may have been sent.
	req.ContentLength = size
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", leg.RequestID)
	c.headers(req, leg.Authorization)
	resp, err := c.http.Do(req)
	if err != nil {
		kind := Broken
		if !connected.Load() {
			kind = Dial
		} else if ctx.Err() == nil {
			// An engine that restarts breaks all its connections. The leg that follows
			// must not be given another one whose end has not been noticed yet.
			c.http.CloseIdleConnections()
		}
		return nil, leg.failure(ctx, kind, wireError(kind, err))
	}
	if err := leg.usable(ctx, resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

var errNotHTTP = errors.New("the answer breaks HTTP")

// wireError keeps what says how a connection failed. Everything else that net/http
// has to say of an answer quotes it, and answers don't belong in logs.
func wireError(kind Kind, err error) error {
	var op *net.OpError
	if kind == Dial || errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return errNotHTTP
}

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

// usable turns every answer that is not a plain 200 into an error.
func (l Leg) usable(ctx context.Context, resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		e := l.failure(ctx, Status, nil)
		e.Status = resp.StatusCode
		e.RetryAfter = resp.Header.Get("Retry-After")
		body, err := ReadAll(resp.Body, maxErrorBody)
		if err == nil {
			e.Fault = ReadFault(body)
		}
		return e
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != "application/json" && media != "text/event-stream" {
		return l.failure(ctx, Garbage, errors.New("content type is neither JSON nor an event stream"))
	}
	// Nothing here inflates, and the client was not promised a coding.
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return l.failure(ctx, Garbage, errors.New("content is coded"))
	}
	return nil
}

// failure builds the error of a leg; a leg that our own time limit or the client
// ended says so instead of blaming the connection.
func (l Leg) failure(ctx context.Context, kind Kind, err error) *LegError {
	e := &LegError{Role: l.Instance.Role, Instance: l.Instance.Name, Kind: kind, Sent: kind != Dial, Err: err}
	if ctx.Err() == nil {
		return e
	}
	e.Err = context.Cause(ctx)
	if IsTimeout(e.Err) {
		e.Kind = Timeout
	} else {
		e.Kind = Gone
	}
	return e
}

// IsTimeout reports whether err is one of this package's time limits.
func IsTimeout(err error) bool {
	return errors.Is(err, ErrPrefillTimeout) || errors.Is(err, ErrFirstByteTimeout) ||
		errors.Is(err, ErrIdleTimeout) || errors.Is(err, ErrReuseTimeout) || errors.Is(err, ErrTicketEnded)
}

// legBody is a request body that lets go of its bytes when the transport closes
// it. Without that a stream of minutes keeps its prompt in memory: the transport
// holds the request until the response body ends.
type legBody struct {
	mu   sync.Mutex // guards rest: the transport may close while it still reads
	rest []byte
}

// Read implements io.Reader.
func (b *legBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *legBody) Close() error {
	b.mu.Lock()
	b.rest = nil
	b.mu.Unlock()
	return nil
}
