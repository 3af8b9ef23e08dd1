package cli

import (
	"log/slog"
	"strings"
	"testing"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

// explained is what check-config says of a command line.
func explained(t *testing.T, commandLine string) string {
	t.Helper()
	code, stdout, stderr := runCommand(t, append([]string{"check-config"}, strings.Fields(commandLine)...)...)
	if code != command.ExitOK {
		t.Fatalf("check-config %s: exit code %d\n%s", commandLine, code, stderr)
	}
	return stdout
}

func TestExplain_SaysWhatAConnectorDoesAndCannotDo(t *testing.T) {
	const lmcache = `--connector lmcache --decode http://d:8200 --decoder-registry {"http://d:8200":{"receiver_host":"10.0.0.9","receiver_init_port":7300,"receiver_alloc_port":7400}} `
	for _, tc := range []struct {
		args        string
		says, lacks []string
	}{
		{"", []string{"connector nixl", "no secret"}, nil},
		{"--connector multi", nil, []string{"leaves no tickets"}},
		{"--connector orchestrated", nil, []string{"no secret", "leaves no tickets"}},
		{
			"--connector orchestrated --release off --ttl 100s",
			[]string{"connector orchestrated leaves no tickets: no effect of release.mode, store.ttl"}, nil,
		},
		{"--release off", nil, []string{"leaves no tickets"}},
		{"--connector mooncake --hand-back now", []string{"leaves no tickets: no effect of hand_back.mode"}, nil},
		{"--connector lmcache-storage --tenant-salt", []string{"cache_salt does not keep tenants apart", "conversation.tenant_salt keeps tenants apart"}, nil},
		{lmcache, []string{
			"decode d:8200 receives at 10.0.0.9, ports 7300 and 7400", "ends that engine", "lmcache.max_prompt_tokens is not set", "each hand-over has LMCache keys of its own", "each decode leg has a cache_salt of its own",
		}, nil},
		{lmcache + "--lmcache-max-prompt-tokens 8192", nil, []string{"max_prompt_tokens is not set"}},
		{
			`--connector lmcache --decode-dns http://d:8200 --decoder-registry {"http://d:8200":{"receiver_host":"d","receiver_init_port":[1,2],"receiver_alloc_port":[3,4]}}`,
			[]string{"decode d:8200 receives at d, ports 1,2 and 3,4", "not in lmcache.decoder_registry get no KV"}, nil,
		},
		{
			"--prefill http://p:1,http://q:1 --decode-dns http://decode:8200",
			[]string{"prefill q:1 at http://q:1", "decode by DNS: http://decode:8200, asked every 10s", "routing.disagg_threshold", "no secret: tickets end with this process"},
			[]string{"localhost:8200"},
		},
		{"--kv-events-port 5557", []string{"KV events of prefill instances are read at port 5557"}, nil},
	} {
		text := explained(t, tc.args)
		for _, part := range tc.says {
			if !strings.Contains(text, part) {
				t.Errorf("check-config %s lacks %q\n%s", tc.args, part, text)
			}
		}
		for _, part := range tc.lacks {
			if strings.Contains(text, part) {
				t.Errorf("check-config %s says %q\n%s", tc.args, part, text)
			}
		}
	}
}

// TestExplain_WhatConnectorsCanDo compares what the configuration believes of connectors with what they say of themselves.
func TestExplain_WhatConnectorsCanDo(t *testing.T) {
	for _, name := range config.Connectors() {
		cfg := config.Default()
		cfg.Connector.Name = name
		connector, err := (&app.Proxy{}).OpenConnector(cfg, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		traits := connector.Traits()
		if traits.Reuses != cfg.Connector.ReusesKV() {
			t.Errorf("%s: %+v, but it is held to reuse KV: %t", name, traits, cfg.Connector.ReusesKV())
		}
		if traits.HandsBack != cfg.Connector.HandsBack() {
			t.Errorf("%s: hands back: %t, but it is held to: %t", name, traits.HandsBack, cfg.Connector.HandsBack())
		}
	}
}
