package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	pageSize  = 500 // objects; what kubectl asks for
	maxPage   = 16 << 20
	pageLimit = time.Minute // for one page
)

type page struct {
	Metadata struct {
		ResourceVersion string
		Continue        string
	}
	Items []json.RawMessage
}

// list reads all objects, page by page, and returns them by name. All pages have the same version, and a watch goes on from there.
func list(ctx context.Context, c *client, r reader) (_ map[string]object, version string, _ error) {
	objects := map[string]object{}
	next := ""
	for {
		p, err := readPage(ctx, c, next)
		if err != nil {
			return nil, "", err
		}
		if len(objects)+len(p.Items) > maxObjects {
			return nil, "", fmt.Errorf("list: %w", errTooMany)
		}
		for _, item := range p.Items {
			o, err := r.read(item)
			if err != nil {
				return nil, "", fmt.Errorf("list: %w", err)
			}
			objects[o.name] = o
		}
		if p.Metadata.ResourceVersion == "" {
			return nil, "", errors.New("list: the answer has no resourceVersion")
		}
		if next = p.Metadata.Continue; next == "" {
			return objects, p.Metadata.ResourceVersion, nil
		}
		if len(p.Items) == 0 {
			return nil, "", errors.New("list: an empty page that is not the last") // else a list might never end
		}
	}
}

func readPage(ctx context.Context, c *client, next string) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if next != "" {
		query.Set("continue", next)
	}
	res, err := c.get(ctx, "list", query)
	if err != nil {
		return page{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(http.MaxBytesReader(nil, res.Body, maxPage))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return page{}, fmt.Errorf("list: %w", errPageLarge)
	}
	if err != nil {
		return page{}, fmt.Errorf("list: %w", err)
	}
	var p page
	if err := json.Unmarshal(text, &p); err != nil {
		return page{}, fmt.Errorf("list: %w", err)
	}
	return p, nil
}

// maxEvent bounds a watch event. An object in the API server's store has 1.5 MiB at most (etcd's --max-request-bytes).
const maxEvent = 2 << 20

// Kinds of events (metav1.WatchEvent). An object that no longer matches the selector comes as deleted.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failed   = "ERROR"
)

// event is an event of a watch: an object in its new state, a deleted object in its last state, or just a version.
type event struct {
	Type   string
	Object json.RawMessage
}

type events struct {
	source  io.Reader
	decoder *json.Decoder
	read    int64 // bytes that the decoder has got
}

func newEvents(source io.Reader) *events {
	e := &events{source: source}
	e.decoder = json.NewDecoder(e)
	return e
}

// Read gives the decoder at most as many bytes as the current event may still have.
func (e *events) Read(p []byte) (int, error) {
	left := e.decoder.InputOffset() + maxEvent - e.read
	if left <= 0 {
		return 0, fmt.Errorf("%w: more than 2 MiB", errUnreadable)
	}
	n, err := e.source.Read(p[:min(int64(len(p)), left)])
	e.read += int64(n)
	return n, err
}

// next returns io.EOF at the end of the stream, io.ErrUnexpectedEOF or the connection's error if it breaks, and wraps
// errUnreadable.
func (e *events) next() (event, error) {
	var next event
	err := e.decoder.Decode(&next)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &kind) {
		return event{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return next, err
}

func (e event) version() (string, error) {
	var mark pod
	if err := json.Unmarshal(e.Object, &mark); err != nil {
		return "", fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return mark.Metadata.ResourceVersion, nil
}

func (e event) refusal() *refusal {
	told := refusal{verb: "watch", Message: "the event is no Status object"}
	if err := json.Unmarshal(e.Object, &told); err != nil {
		told = refusal{verb: "watch", Message: "the event is no Status object"}
	}
	return &told
}
