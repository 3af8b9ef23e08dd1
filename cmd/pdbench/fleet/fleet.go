package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"carryover/cmd/pdbench/process"
)

// Config says what runs.
type Config struct {
	Binary string // program of the proxy and of the engines
	// Secret is the proxy's secret. The affinity of a conversation depends on it, so it has to be the same in every run.
	Secret          string
	Scale           float64    // how much faster than the wall clock the engines' clocks run
	Prefill, Decode [][]string // flags of each engine besides its role, its port and the common flags
	Serve           []string   // flags of the proxy besides its address and its instances
}

// Fleet has the processes of one run.
type Fleet struct {
	URL             string // of the proxy
	Prefill, Decode []*Engine

	binary string
	folder string
	proxy  *process.Process
	http   *http.Client
}

// Start starts the engines, and then the proxy.
func Start(ctx context.Context, c Config) (*Fleet, error) {
	folder, err := os.MkdirTemp("", "pdbench-fleet-")
	if err != nil {
		return nil, err
	}
	f := &Fleet{binary: c.Binary, folder: folder, http: &http.Client{Transport: &http.Transport{}}}
	if err := f.start(ctx, c); err != nil {
		_, stopped := f.Stop()
		return nil, errors.Join(err, stopped)
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, c Config) error {
	secret := filepath.Join(f.folder, "secret")
	if err := os.WriteFile(secret, []byte(c.Secret), 0o600); err != nil {
		return err
	}
	address, port, err := process.FreeAddress(ctx)
	if err != nil {
		return err
	}
	serve := append([]string{"serve", "--host", process.Loopback, "--port", port, "--admin-listen", "off", "--log-format", "json", "--secret-file", secret,
		"--shutdown-grace", "1s"}, c.Serve...)
	for _, role := range []struct {
		name    string
		engines [][]string
		into    *[]*Engine
	}{{"prefill", c.Prefill, &f.Prefill}, {"decode", c.Decode, &f.Decode}} {
		for i, flags := range role.engines {
			e := &Engine{Name: fmt.Sprintf("%s-%d", role.name, i+1), flags: append(engineFlags(role.name, c.Scale), flags...), http: f.http}
			if err := f.run(ctx, e); err != nil {
				return err
			}
			*role.into = append(*role.into, e)
			serve = append(serve, "--"+role.name, e.URL)
		}
	}
	f.URL = "http://" + address
	f.proxy, err = process.Start(ctx, process.Command{Name: "proxy", Log: f.log(), Binary: f.binary, Arguments: serve,
		Ready: process.Answers(f.URL + "/readyz")})
	return err
}

func (f *Fleet) log() string { return filepath.Join(f.folder, "proxy.log") }

// run starts an engine and reads its address from its first line.
func (f *Fleet) run(ctx context.Context, e *Engine) (err error) {
	var line string
	e.process, err = process.Start(ctx, process.Command{
		Name: e.Name, Log: filepath.Join(f.folder, e.Name+".log"), Binary: f.binary, Arguments: e.flags, FirstLine: &line,
	})
	if err != nil {
		return err
	}
	_, address, ok := strings.Cut(strings.TrimSpace(line), "serves ")
	if !ok {
		e.process.Stop()
		return fmt.Errorf("%s says %q, want its address", e.Name, line)
	}
	e.URL = address
	return nil
}

// Engines returns the engines of both roles.
func (f *Fleet) Engines() []*Engine { return slices.Concat(f.Prefill, f.Decode) }

// Stop ends the proxy first, so that its log has all of its turns, and returns the log.
func (f *Fleet) Stop() (log []byte, err error) {
	if f.proxy != nil {
		f.proxy.Stop()
		log, err = os.ReadFile(f.log())
	}
	for _, e := range f.Engines() {
		e.process.Stop()
	}
	f.http.CloseIdleConnections()
	return log, errors.Join(err, os.RemoveAll(f.folder))
}
