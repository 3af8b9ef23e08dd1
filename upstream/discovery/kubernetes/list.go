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

// page are the fields of a PodList that are needed.
type page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// list reads all objects, page by page, and returns them by name, with their version. All pages have the same version, and a watch
// goes on from there.
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
	if c.cfg.LabelSelector != "" {
		query.Set("labelSelector", c.cfg.LabelSelector)
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
