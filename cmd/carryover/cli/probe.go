package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/command"
)

// probeTimeout bounds the whole probe. Container health checks run every few seconds; Docker's own limit is 30 s.
const probeTimeout = 2 * time.Second

func newProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "probe URL",
		Short: "Exit 0 if a GET of URL answers 2xx within 2 s (container health checks)",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &command.UsageError{Err: fmt.Errorf("probe takes one URL, got %d arguments; see %s --help", len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return probe(cmd.Context(), args[0], probeTimeout)
		},
	}
}

// probe asks the address itself: no HTTP proxy from the environment, and a redirect is an answer that is not 2xx.
func probe(ctx context.Context, target string, limit time.Duration) error {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return &command.UsageError{Err: fmt.Errorf("probe: %q: want an http or https URL", target)}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return &command.UsageError{Err: fmt.Errorf("probe: %w", err)}
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("probe: GET %q: status %s", target, resp.Status)
	}
	return nil
}
