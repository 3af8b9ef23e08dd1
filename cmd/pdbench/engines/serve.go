package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// seen is what the engines report at the end of a measurement.
type seen struct {
	Faults Faults `json:"faults"`
	Counts Counts `json:"counts"`
}

// grace is how long what is under way at the end of a measurement may take before it counts as a leak. A proxy may hold the hand-over of a
// client that has gone for some seconds. Each of its streams needs a gap to see that its reader has gone.
const grace = 5 * time.Second

// Serve serves a prefill engine, a decode engine and a control listener on loopback until ctx ends. It writes their addresses as one line of
// JSON.
func Serve(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var listeners [3]net.Listener
	for i := range listeners {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("engines: %w", err)
		}
		defer l.Close()
		listeners[i] = l
	}
	url := func(l net.Listener) string { return "http://" + l.Addr().String() }
	where, err := json.Marshal(Pair{Prefill: url(listeners[0]), Decode: url(listeners[1]), Control: url(listeners[2])})
	if err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	prefill, decode := newEngines(ctx.Done())
	control := &http.Server{Handler: controls(decode), ReadHeaderTimeout: grace}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return prefill.accept(ctx, listeners[0]) })
	group.Go(func() error { return decode.accept(ctx, listeners[1]) })
	group.Go(func() error {
		decode.pacer.run(ctx)
		return nil
	})
	group.Go(func() error {
		if err := control.Serve(listeners[2]); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("engines: %w", err)
		}
		return nil
	})
	context.AfterFunc(ctx, func() {
		_ = control.Close()
		for _, l := range listeners {
			_ = l.Close()
		}
	})
	if _, err := fmt.Fprintf(out, "%s\n", where); err != nil {
		cancel()
		return errors.Join(fmt.Errorf("engines: %w", err), group.Wait())
	}
	return group.Wait()
}

// controls is the listener with which a measurement sets and asks the engines.
func controls(e *engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pace", func(w http.ResponseWriter, r *http.Request) {
		var p Pace
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Gap < 0 || p.Gap > longestGap || p.Chunks < 1 {
			http.Error(w, "no pace", http.StatusBadRequest)
			return
		}
		e.pace.Store(&p)
		e.ledger.clear()
	})
	mux.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) { e.ledger.reset() })
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(e.settled(r.Context())) // its reader has gone
	})
	return mux
}

// settled returns the counts once nothing is under way, at the latest after the grace.
func (e *engine) settled(ctx context.Context) seen {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		f, c, quiet := e.ledger.look()
		if quiet {
			return seen{f, c}
		}
		select {
		case <-ctx.Done():
			f, c, _ = e.ledger.look()
			return seen{f, c}
		case <-ticker.C:
		}
	}
}
