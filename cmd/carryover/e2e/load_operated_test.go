package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/server/record"
)

// operated is a rig with the listener for operators, and with a configuration file that a test changes.
type operated struct {
	*rig
	proxy     *app.Proxy
	operators string // base URL of the admin listener
	file      string
	asked     atomic.Int64
}

// startOperated runs the program; text is what its file says first, beside the command line.
func startOperated(t *testing.T, c rigConfig, text string) *operated {
	t.Helper()
	o := &operated{file: filepath.Join(t.TempDir(), "carryover.yaml")}
	o.configure(t, text)
	c.flags = append([]string{"--config", o.file, "--tenant-header", "X-Tenant"}, c.flags...)
	c.wire = func(cfg config.Config, p *app.Proxy) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o.proxy, o.operators = p, "http://"+listener.Addr().String()
		logger := slog.New(slog.DiscardHandler)
		reload := &app.Reloader{Again: func() (config.Config, error) { return configtest.Load(t, o.args) }, Proxy: p, Logger: logger, Cfg: cfg}
		p.Alongside = append(p.Alongside, func(ctx context.Context) error {
			return p.ServeAdmin(ctx, listener, "", reload.Reload, logger)
		})
	}
	o.rig = startRig(t, c)
	return o
}

// configure writes the file.
func (o *operated) configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(o.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload puts another file in force.
func (o *operated) reload(t *testing.T, text string) {
	t.Helper()
	o.configure(t, text)
	if status, body := o.operate(t, http.MethodPost, "/admin/reload"); status != http.StatusOK {
		t.Fatalf("reload: %d %s", status, body)
	}
}

// operate asks the admin listener.
func (o *operated) operate(t *testing.T, method, path string) (int, []byte) {
	t.Helper()
	return askBare(t, o.client, method, o.operators+path)
}

// askBare sends a request without a body.
func askBare(t *testing.T, client *http.Client, method, url string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// shown is what the admin listener shows of an instance.
type shown struct {
	Role, URL, Name, State, Why string
	InFlight                    int     `json:"in_flight"`
	Running, Waiting            int     // 0 as long as nothing was read
	KVUsage                     float64 `json:"kv_usage"`
	KVTokens                    int     `json:"kv_tokens"`
	PinnedTokens                int     `json:"pinned_tokens"`
	TokenMicros                 float64 `json:"us_per_prompt_token"`
}

// send sends a chat turn as a tenant and returns the answer with the record of the turn.
func (o *operated) send(t *testing.T, tenant string, members map[string]any) (*answered, record.Turn) {
	t.Helper()
	a, id := o.try(t.Context(), t, tenant, members, unwatched)
	return a, o.turns.await(t, id)
}

// try sends a chat turn, or with a prompt a text completion, until it has ended or its context does.
func (o *operated) try(ctx context.Context, t *testing.T, tenant string, members map[string]any, watch func(int, []byte)) (*answered, string) {
	t.Helper()
	id := fmt.Sprintf("asked-%d", o.asked.Add(1))
	header := http.Header{"X-Request-Id": {id}}
	if tenant != "" {
		header.Set("X-Tenant", tenant)
	}
	path := "/v1/chat/completions"
	if members["prompt"] != nil {
		path = "/v1/completions"
	}
	a, err := o.post(ctx, path, header, encode(members), watch)
	if err != nil && ctx.Err() == nil {
		t.Errorf("%s: %v", id, err)
	}
	if err != nil {
		a = &answered{ends: endsLeft}
	}
	return a, id
}

// foretold is a conversation whose answers are known beforehand.
type foretold struct {
	*operated
	id       string
	stream   bool
	turns    int
	messages []json.RawMessage
}

// say asks what has so much text before it, and wants the model's answer.
func (d *foretold) say(t *testing.T, text string) (*answered, record.Turn) {
	t.Helper()
	d.turns++
	answer := fmt.Sprintf("Answer %d of %s is that the clerk remembers it.", d.turns, d.id)
	d.messages = append(d.messages, question(text+" SAY "+answer))
	a, rec := d.send(t, "", map[string]any{
		"model": "sim", "messages": d.messages, "max_tokens": 400, "stream": d.stream, "conversation_id": d.id,
	})
	if a.status != http.StatusOK || a.content != answer {
		t.Fatalf("%s, turn %d: got status %d, %q, want %q: %.500s", d.id, d.turns, a.status, a.content, answer, a.raw)
	}
	d.messages = append(d.messages, a.assistant())
	return a, rec
}
