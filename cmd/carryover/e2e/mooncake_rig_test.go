package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// pushing says what a rig with Mooncake is made of.
type pushing struct {
	prefills, decodes int // 1 for 0
	ranks             int // of each prefill instance; those that are picked one by one if listed
	listed            bool
	change            func(*vllmsim.Config)
	flags             []string
	replace           func(*server.Deps)
	text              string // of the configuration file, besides the instances
}

// startMooncake runs the program in front of engines with Mooncake.
func startMooncake(t *testing.T, m pushing) *rig {
	t.Helper()
	o := &rig{cfg: vllmsim.DefaultConfig(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}, turns: newTurnLog()}
	o.file = filepath.Join(t.TempDir(), "carryover.yaml")
	text := strings.Builder{}
	text.WriteString(m.text + "prefill:\n")
	role := func(role string, n int) (all []*vllmsim.Instance) {
		for range max(n, 1) {
			cfg := vllmsim.DefaultConfig()
			cfg.Connector, cfg.Role, cfg.PromptTokensDetails = vllmsim.ConnectorMooncake, role, true
			if role == config.RolePrefill {
				cfg.DPRanks = m.ranks
			}
			if m.change != nil {
				m.change(&cfg)
			}
			all = append(all, testrig.StartInstance(t, cfg, ""))
		}
		return all
	}
	o.prefill, o.decode = role(config.RolePrefill, m.prefills), role(config.RoleDecode, m.decodes)
	for _, p := range o.prefill {
		fmt.Fprintf(&text, "  - {url: %q, bootstrap_port: %d", p.URL(), p.Addresses().BootstrapPort)
		if m.listed {
			fmt.Fprintf(&text, ", ranks: %d", m.ranks)
		}
		text.WriteString("}\n")
	}
	text.WriteString("decode:\n")
	for _, d := range o.decode {
		fmt.Fprintf(&text, "  - {url: %q}\n", d.URL())
	}
	o.configure(t, text.String())
	// A decode leg that waits for KV in vain must fail the test before the engine's 480 s are over.
	own := []string{"--config", o.file, "--connector", "mooncake", "--first-byte-timeout", "20s", "--answer-timeout", "20s"}
	o.args = strings.Join(slices.Concat(testrig.Patient(), steady, own, m.flags), " ")
	cfg, err := configtest.Load(t, o.args)
	if err != nil {
		t.Fatal(err)
	}
	o.serve(t, cfg, rigConfig{replace: m.replace})
	return o
}

// kinds are the four kinds of requests.
func kinds(t *testing.T, run func(t *testing.T, ask func(text string) map[string]any)) {
	t.Helper()
	for _, stream := range []bool{false, true} {
		for _, chat := range []bool{false, true} {
			t.Run(fmt.Sprintf("stream=%t,chat=%t", stream, chat), func(t *testing.T) {
				t.Parallel()
				run(t, func(text string) map[string]any {
					members := map[string]any{"model": "sim", "max_tokens": 200, "stream": stream, "prompt": text}
					if chat {
						delete(members, "prompt")
						members["messages"] = []json.RawMessage{question(text)}
					}
					return members
				})
			})
		}
	}
}

// turnOver sends a turn that is to be answered with the text behind SAY, over both instances.
func (o *rig) turnOver(t *testing.T, members map[string]any, want string) record.Turn {
	t.Helper()
	a, rec := o.sent(t, members)
	if a.status != http.StatusOK || a.content != want || !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode;") {
		t.Errorf("got status %d, %q, X-KV-Path %q, want %q over both: %.300s (%v)", a.status, a.content, a.header.Get("X-KV-Path"), want, a.raw, rec.End.Err)
	}
	if rec.End.Err != nil {
		t.Errorf("the turn failed: %v", rec.End.Err)
	}
	return rec
}

// idle waits until no instance has a request of a client.
func (o *rig) idle(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool { return o.sum(t, "")["running"] == 0 }) {
		t.Fatalf("%d requests still run", o.sum(t, "")["running"])
	}
}

// sentTo is the instance of a turn's last leg of a role.
func sentTo(rec record.Turn, role upstream.Role) (instance string) {
	for _, leg := range rec.Legs {
		if leg.Role == role {
			instance = leg.Instance
		}
	}
	return instance
}
