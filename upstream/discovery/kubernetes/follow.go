package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"carryover/upstream"
)

// A watch is requested for five to ten minutes at random, as client-go does, so that replicas do not return together. If the API
// server does not end it then, this side does. A watch that ends within a second without an event is a failure.
const (
	shortestWatch = 5 * time.Minute
	watchGrace    = 30 * time.Second
	brief         = time.Second
)

// silence is how long a watch may bring no event before its version is doubted. The API server sends a bookmark every minute if
// any pod has changed. But the version may be ahead of the server's own (its store was restored from a backup). Then the server
// accepts the watch, and sends nothing until its store has reached that version.
const silence = 2 * time.Minute

type follower struct {
	client  *client
	reader  reader
	roster  *roster
	backoff backoff
	version string // a watch goes on from here; empty: list first
}

// Watch calls set with the first list of instances and then whenever they change, until ctx ends; it returns nil then. It fails
// at once if the namespace is neither configured nor in the pod's namespace file. All other errors are logged, and the request is
// repeated.
func (s *Source) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	namespace, err := s.cfg.namespace()
	if err != nil {
		return err
	}
	f := &follower{
		client: newClient(s.cfg, namespace),
		reader: reader{port: s.cfg.Port, prefill: s.cfg.PrefillLabels, decode: s.cfg.DecodeLabels},
		roster: &roster{set: set, logger: s.cfg.Logger},
	}
	defer f.client.close()
	for {
		err := f.step(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait := f.backoff.after(err)
		if wait > 0 {
			s.complain(err, namespace, wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (f *follower) step(ctx context.Context) error {
	if f.version == "" {
		objects, version, err := list(ctx, f.client, f.reader)
		if err != nil {
			return err
		}
		f.version = version
		return f.roster.replace(objects)
	}
	err := f.watch(ctx)
	if err != nil && !resumable(err) {
		f.version = ""
	}
	return err
}

func (f *follower) watch(ctx context.Context) error {
	duration := shortestWatch + rand.N(shortestWatch)
	ctx, cancel := context.WithTimeout(ctx, duration+watchGrace)
	defer cancel()
	query := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {f.version},
		"timeoutSeconds": {strconv.Itoa(int(duration / time.Second))},
	}
	began := time.Now()
	res, err := f.client.get(ctx, "watch", query)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	stream := newEvents(res.Body)
	for said := false; ; said = true {
		e, err := stream.next()
		if errors.Is(err, io.EOF) {
			switch lasted := time.Since(began); {
			case said:
			case lasted < brief:
				return errBrief
			case lasted >= silence:
				f.version = ""
			}
			return nil
		}
		if err == nil {
			err = f.apply(e)
		}
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		f.backoff = backoff{}
	}
}

func (f *follower) apply(e event) error {
	switch e.Type {
	case added, modified, deleted:
	case bookmark:
		version, err := e.version()
		f.version = cmp.Or(version, f.version)
		return err
	case failed:
		return e.refusal()
	default:
		return nil // of a later Kubernetes
	}
	o, err := f.reader.read(e.Object)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	f.version = cmp.Or(o.version, f.version)
	if e.Type == deleted {
		return f.roster.drop(o.name)
	}
	return f.roster.put(o)
}

// complain logs an error. If permissions are missing, the line names those that the role must grant.
func (s *Source) complain(err error, namespace string, wait time.Duration) {
	log := s.cfg.Logger.With("namespace", namespace, "error", err, "again_in", wait.Round(time.Millisecond))
	if r, ok := errors.AsType[*refusal](err); ok && r.Code == http.StatusForbidden {
		log.Error("the service account may not follow the instances", "needs_verb", r.verb, "needs_resource", "pods", "needs_api_group", "")
		return
	}
	log.Warn("can't read the instances from the API server; the last ones stay")
}

// Failed requests are repeated after 1 s, 2 s, 4 s … 30 s. Each wait is shortened at random by up to a half, so that replicas do
// not retry together. A wait that the API server asks for (Retry-After) is kept up to two minutes.
const (
	firstWait     = time.Second
	longestWait   = 30 * time.Second
	longestAskFor = 120 // seconds
)

type backoff struct {
	failures int
	relisted bool // a list has followed a forgotten version without a wait
}

// after returns how long to wait after a request that ended with err. There is no wait if err is nil, or if a version was
// forgotten for the first time, because the list that follows repairs that.
func (p *backoff) after(err error) time.Duration {
	if err == nil {
		return 0
	}
	if forgotten(err) && !p.relisted {
		p.relisted = true
		return 0
	}
	p.failures++
	wait := longestWait
	if shift := p.failures - 1; shift < 5 {
		wait = min(firstWait<<shift, longestWait)
	}
	wait -= rand.N(wait / 2)
	if r, ok := errors.AsType[*refusal](err); ok {
		wait = max(wait, time.Duration(min(r.Details.RetryAfterSeconds, longestAskFor))*time.Second)
	}
	return wait
}
