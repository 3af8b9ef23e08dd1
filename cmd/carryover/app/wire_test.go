package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/server"
	"carryover/upstream"
)

// watching is a source of instances.
type watching func(ctx context.Context, set func([]upstream.Instance)) error

// Watch implements upstream.Source.
func (w watching) Watch(ctx context.Context, set func([]upstream.Instance)) error { return w(ctx, set) }

var errDiscovery = errors.New("no such service")

// runWith starts the program with a source, and returns what its run comes to.
func runWith(ctx context.Context, t *testing.T, source watching, flags ...string) (*Proxy, <-chan error) {
	t.Helper()
	cfg, err := configtest.Load(t, strings.Join(append(flags, "--shutdown-grace", "1s"), " "))
	must(t, err)
	logger := slog.New(slog.DiscardHandler)
	p, deps, err := NewParts(Configured{Config: cfg}, logger)
	must(t, err)
	p.Sources.All = source
	p.Probe = unprobed
	p.Server = server.New(NewServerConfig(cfg, logger), deps)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ended := make(chan error, 1) // one result
	go func() { ended <- p.Run(ctx, listener) }()
	t.Cleanup(func() { _ = listener.Close() })
	return p, ended
}

// end waits for the end of a run.
func end(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the program goes on")
		return nil
	}
}

func TestRun_DiscoveryThatEndsAtOnceEndsTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		ends error
		want string
	}{
		"with an error": {errDiscovery, "discovery: no such service"},
		"without one":   {nil, "discovery ended before it gave a list of instances"},
	} {
		t.Run(name, func(t *testing.T) {
			_, ended := runWith(t.Context(), t, func(context.Context, func([]upstream.Instance)) error { return tc.ends })
			if err := end(t, ended); err == nil || err.Error() != tc.want || !errors.Is(err, tc.ends) && tc.ends != nil {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestRun_SignalBeforeTheFirstListEndsTheStart(t *testing.T) {
	for name, last := range map[string]error{"with an error": errDiscovery, "without one": nil} {
		t.Run(name, func(t *testing.T) {
			ctx, signal := context.WithCancel(t.Context())
			asked := make(chan struct{})
			_, ended := runWith(ctx, t, func(ctx context.Context, _ func([]upstream.Instance)) error {
				close(asked)
				<-ctx.Done()
				return last
			})
			<-asked
			signal()
			if err := end(t, ended); err != nil {
				t.Errorf("got %v, want a clean end", err)
			}
		})
	}
}

// Probes and the store end with discovery; a server that went on without them would believe what it knew last for ever.
func TestRun_DiscoveryThatFailsLaterEndsTheProgram(t *testing.T) {
	_, ended := runWith(t.Context(), t, func(_ context.Context, set func([]upstream.Instance)) error {
		set(nil)
		return errDiscovery
	})
	if err := end(t, ended); !errors.Is(err, errDiscovery) {
		t.Errorf("got %v, want %v", err, errDiscovery)
	}
}

func TestRun_DiscoveredInstancesAreCompleted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	found := []upstream.Instance{
		{Role: upstream.RolePrefill, Name: "p", BaseURL: "http://127.0.0.1:1"},
		{Role: upstream.RoleDecode, Name: "bare", BaseURL: "http://127.0.0.1:2"},
		{Role: upstream.RoleDecode, Name: "full", BaseURL: "http://127.0.0.1:3", KVHost: "d.kv", KVTTL: 100 * time.Second},
	}
	given := slices.Clone(found)
	set := make(chan struct{})
	p, ended := runWith(ctx, t, func(ctx context.Context, to func([]upstream.Instance)) error {
		to(given)
		close(set)
		<-ctx.Done()
		return ctx.Err()
	}, "--kv-host", "pin", "--decoder-kv-ttl", "470s")
	<-set
	var got []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, engine := range p.Fleet.Engines(role) {
			got = append(got, *engine.Instance())
		}
	}
	stop()
	if err := end(t, ended); err != nil { // and what the source says at its end is no failure
		t.Errorf("got %v, want a clean end", err)
	}
	want := slices.Clone(found)
	want[0].KVHost, want[1].KVHost, want[1].KVTTL = "pin", "pin", 470*time.Second
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if !slices.Equal(given, found) {
		t.Errorf("the source's own list was changed to %+v", given)
	}
}

func TestNewPolicy_EachNameIsAnother(t *testing.T) {
	var c config.Config
	for _, s := range config.EngineSettings(&c) {
		if s.Key != "routing.prefill" {
			continue
		}
		seen := map[string]string{}
		for _, name := range s.OneOf {
			kind := fmt.Sprintf("%T", newPolicy(name))
			if other, twice := seen[kind]; twice {
				t.Errorf("%s and %s are both %s", name, other, kind)
			}
			seen[kind] = name
		}
		if len(seen) != 6 {
			t.Errorf("got %v, want six policies", seen)
		}
	}
}

// unprobed stands for a prober that does nothing.
func unprobed(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
