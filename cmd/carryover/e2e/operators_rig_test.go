package e2e

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// foundWithin is longer than any source takes to find a change on a busy machine: names are looked up every ten seconds.
const foundWithin = 20 * time.Second

// startChanging runs the program, with a listener for operators, in front of instances that come and go. It is taught how each of them reads
// prompts: a turn that learns it is no hit.
func startChanging(t *testing.T, c rigConfig) *rig {
	t.Helper()
	c.admin, c.taught = true, true
	return startRig(t, c)
}

// authority is the host:port of an instance, which is also its name unless it is given one.
func authority(instance *vllmsim.Instance) string {
	return strings.TrimPrefix(instance.URL(), "http://")
}

// await waits until turns go to this decode instance alone, and one that was removed has turns. The program is taught of the new one.
func (r *rig) await(t *testing.T, decode *vllmsim.Instance) {
	t.Helper()
	if !within(foundWithin, func() bool {
		engines := r.proxy.Fleet.Engines(upstream.RoleDecode)
		return len(engines) == 1 && engines[0].Name == authority(decode) && len(r.proxy.Fleet.Draining()) > 0
	}) {
		t.Fatalf("turns do not go to %s alone, or none is drained", authority(decode))
	}
	r.look()
	r.know()
}

// awaitDrained waits until no instance that was removed has turns.
func (r *rig) awaitDrained(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool { return len(r.proxy.Fleet.Draining()) == 0 }) {
		t.Errorf("%d removed instances are still known after their last turn", len(r.proxy.Fleet.Draining()))
	}
}

// serveOperators has the program serve operators, too.
func (r *rig) serveOperators(t *testing.T, cfg config.Config) {
	t.Helper()
	listener, err := app.OpenAdmin(t.Context(), config.AdminConfig{Listen: "127.0.0.1:0"})
	noError(t, err)
	r.operators = "http://" + listener.Addr().String()
	logger := slog.New(slog.DiscardHandler)
	reload := &app.Reloader{Again: func() (config.Config, error) { return configtest.Load(t, r.args) }, Proxy: r.proxy, Logger: logger, Cfg: cfg}
	r.proxy.Alongside = append(r.proxy.Alongside, func(ctx context.Context) error {
		return r.proxy.ServeAdmin(ctx, listener, "", reload.Reload, logger)
	})
}

// configure writes the configuration file.
func (r *rig) configure(t *testing.T, text string) {
	t.Helper()
	noError(t, os.WriteFile(r.file, []byte(text), 0o600))
}

// reload puts another file in force.
func (r *rig) reload(t *testing.T, text string) {
	t.Helper()
	r.configure(t, text)
	if status, body := r.operate(t, http.MethodPost, "/admin/reload", nil); status != http.StatusOK {
		t.Fatalf("reload: %d %s", status, body)
	}
}

// operate asks the admin listener, with a body or nil, and returns its answer.
func (r *rig) operate(t *testing.T, method, path string, body any) (status int, answer string) {
	t.Helper()
	var raw []byte
	if body != nil {
		raw = encode(body)
	}
	return askBare(t, r.client, method, r.operators+path, raw)
}

// askBare sends JSON, or nothing, and returns the answer.
func askBare(t *testing.T, client *http.Client, method, url string, body []byte) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	noError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	noError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	noError(t, err)
	return resp.StatusCode, string(text)
}

// get asks for a page.
func (r *rig) get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	return askBare(t, r.client, http.MethodGet, url, nil)
}
