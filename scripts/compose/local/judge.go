package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"carryover/scripts/compose"
)

// turns is how many the conversation has.
const turns = 3

// judge holds a conversation through the published port and looks at what the services say of it.
func (s *stack) judge(ctx context.Context) error {
	base, err := s.published("8000")
	if err != nil {
		return err
	}
	proxies := s.proxies()
	fmt.Fprintf(s.out, "clients  %s\n", base)
	c := &conversation{base: base, id: "compose-" + rand.Text()[:8]}
	// With its first request of each shape a replica learns what prefill makes of it.
	for range proxies {
		warm := &conversation{base: base, id: "warm-up-" + rand.Text()[:8]}
		for range turns {
			if _, err := warm.turn(ctx); err != nil {
				return fmt.Errorf("warm-up: %w", err)
			}
		}
		// An odd number of turns: the next conversation begins at the next replica.
	}
	var served []string
	var missed []error
	for n := 1; n <= turns; n++ {
		answer, err := c.turn(ctx)
		if err != nil {
			return fmt.Errorf("turn %d: %w", n, err)
		}
		by, err := s.server(ctx, proxies, answer.id)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "turn %d   %-14s %s\n", n, by, answer.reuse)
		if n > 1 && !strings.HasPrefix(answer.reuse, "hit;") {
			missed = append(missed, fmt.Errorf("turn %d is no hit: %s", n, answer.reuse))
		}
		served = append(served, by)
	}
	for n := 1; n < turns && len(proxies) > 1; n++ {
		if served[n] == served[n-1] {
			missed = append(missed, fmt.Errorf("turns %d and %d were both served by %s", n, n+1, served[n]))
		}
	}
	missed = append(missed, s.misread(ctx))
	for _, name := range proxies {
		missed = append(missed, s.guarded(ctx, name))
	}
	missed = append(missed, s.measured(ctx, proxies))
	return errors.Join(missed...)
}

// published is where the service answers whose port is published as this one: at the port of its container, because this machine's own
// may be taken.
func (s *stack) published(port string) (string, error) {
	for name, service := range s.project.Services {
		for _, p := range service.Ports {
			if p.Published == port {
				return "http://" + net.JoinHostPort(s.loopback.Address(name), fmt.Sprint(p.Target)), nil
			}
		}
	}
	return "", fmt.Errorf("no service publishes port %s", port)
}

// proxies are the services that run the proxy, sims those that run a simulated engine.
func (s *stack) proxies() []string {
	return s.ours(func(c types.ServiceConfig) bool { return strings.HasPrefix(c.Command[0], "--") })
}

func (s *stack) sims() []string {
	return s.ours(func(c types.ServiceConfig) bool { return c.Command[0] == "sim" })
}

func (s *stack) ours(are func(types.ServiceConfig) bool) []string {
	var names []string
	for name, service := range s.project.Services {
		if service.Image == compose.Image && len(service.Command) > 0 && are(service) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// server is the proxy whose log has the turn. The line may come after the last byte of the answer.
func (s *stack) server(ctx context.Context, proxies []string, turn string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, started := range s.running {
			if slices.Contains(proxies, started.name) && slices.ContainsFunc(started.output.lines(), func(line string) bool {
				return strings.Contains(line, "msg=turn ") && strings.Contains(line, "turn="+turn+" ")
			}) {
				return started.name, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("no proxy has logged turn %s: %w", turn, ctx.Err())
		}
	}
}

// misread fails if an engine has read KV wrongly, twice or too late.
func (s *stack) misread(ctx context.Context) error {
	var errs []error
	for _, name := range s.sims() {
		text, err := get(ctx, "http://"+net.JoinHostPort(s.loopback.Address(name), "8000")+"/_sim/stats", "", http.StatusOK)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: its counters: %w", name, err))
			continue
		}
		var counters map[string]any
		if err := json.Unmarshal(text, &counters); err != nil {
			errs = append(errs, fmt.Errorf("%s: its counters: %w", name, err))
		}
		for _, counter := range []string{"corrupt_reads", "poisoned", "double_reads", "expired_reads", "unknown_reads"} {
			if n, told := counters[counter].(float64); !told || n != 0 {
				errs = append(errs, fmt.Errorf("%s: %s is %v", name, counter, counters[counter]))
			}
		}
	}
	return errors.Join(errs...)
}

// measured fails unless the proxies export, to those who have the token, every metric that dashboards and alerts name.
func (s *stack) measured(ctx context.Context, proxies []string) error {
	used, err := compose.Metrics(s.project.WorkingDir)
	if err != nil {
		return err
	}
	token, err := s.token()
	if err != nil {
		return err
	}
	given := compose.Given{}
	for _, name := range proxies {
		text, err := get(ctx, s.operators(name)+"/metrics", token, http.StatusOK)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		given.Add(string(text))
	}
	if missing := used.Missing(given); len(missing) > 0 {
		return fmt.Errorf("no proxy exports\n\t%s", strings.Join(missing, "\n\t"))
	}
	fmt.Fprintf(s.out, "metrics  the %d that dashboards and alerts name are exported\n", len(used))
	return nil
}

// operators is the address of a proxy's listener for operators.
func (s *stack) operators(name string) string {
	return "http://" + net.JoinHostPort(s.loopback.Address(name), "9480")
}

func (s *stack) token() (string, error) {
	token, err := os.ReadFile(s.project.Secrets["admin_token"].File)
	return strings.TrimSpace(string(token)), err
}

// guarded fails unless the listener for operators refuses those who have no token, and answers those who have it.
func (s *stack) guarded(ctx context.Context, name string) error {
	token, err := s.token()
	if err != nil {
		return err
	}
	for credential, want := range map[string]int{"": http.StatusUnauthorized, token: http.StatusOK} {
		if _, err := get(ctx, s.operators(name)+"/admin/instances", credential, want); err != nil {
			return fmt.Errorf("%s: listener for operators: %w", name, err)
		}
	}
	return nil
}
