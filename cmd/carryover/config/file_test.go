package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func configFiles(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob("../../../testdata/config/" + pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s in testdata/config (%v)", pattern, err)
	}
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths
}

func TestFile_Accepted(t *testing.T) {
	for _, name := range configFiles(t, "accepted-*.yaml") {
		t.Run(name, func(t *testing.T) {
			if _, err := loadSources(t, []string{"--config", name}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFile_Rejected compares with rejected-NAME.txt, which holds the whole message.
func TestFile_Rejected(t *testing.T) {
	for _, name := range configFiles(t, "rejected-*.yaml") {
		t.Run(name, func(t *testing.T) {
			_, err := loadSources(t, []string{"--config", name})
			want, readErr := os.ReadFile(strings.TrimSuffix(name, ".yaml") + ".txt")
			must(t, readErr)
			if err == nil || err.Error()+"\n" != string(want) {
				t.Errorf("--config %s\n got %v\nwant %s", name, err, want)
			}
		})
	}
}

func TestFile_WithoutMembersKeepsDefaults(t *testing.T) {
	want, err := loadSources(t, nil)
	must(t, err)
	for _, name := range []string{"accepted-empty.yaml", "accepted-comments-only.yaml"} {
		if got, err := loadSources(t, []string{"--config", name}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v (%v), want %+v", name, got, err, want)
		}
	}
}

func TestFile_AliasesAndQuotedNumbers(t *testing.T) {
	cfg, err := loadSources(t, []string{"--config", "accepted-anchors.yaml"})
	must(t, err)
	if cfg.Decode[0].KVHost != "10.1.0.1" || cfg.Listen.Port != 9000 || cfg.Listen.Host != "::" {
		t.Errorf("kv_host %q, port %d, host %q; want 10.1.0.1, 9000, ::", cfg.Decode[0].KVHost, cfg.Listen.Port, cfg.Listen.Host)
	}
}

func TestPrint_LoadsAgain(t *testing.T) {
	for _, name := range []string{"accepted-empty.yaml", "accepted-small.yaml", "accepted-full.yaml"} {
		want, err := loadSources(t, []string{"--config", name})
		must(t, err)
		want.Auth.UpstreamKey = "" // printed redacted, which no key is
		printed := Marshal(want)
		path := filepath.Join(t.TempDir(), "printed.yaml")
		must(t, os.WriteFile(path, printed, 0o600))
		if got, err := loadSources(t, []string{"--config", path}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s printed and loaded\n got %+v (%v)\nwant %+v\n%s", name, got, err, want, printed)
		}
	}
}

func TestPrint_IsAReferenceOfAllSettings(t *testing.T) {
	cfg, err := loadSources(t, nil, "CARRYOVER_SECRET=0123456789abcdef", "CARRYOVER_ADMIN_TOKEN=fedcba9876543210", "OPENAI_API_KEY=sk-hunter2")
	must(t, err)
	printed := Marshal(cfg)
	for _, s := range Settings(&cfg) {
		for _, part := range []string{"# " + s.Help, " --" + s.Flag, s.Variable(), s.Name() + ":"} {
			if part != " --" && !strings.Contains(strings.ReplaceAll(string(printed), "(--", " --"), part) {
				t.Errorf("%s: the print lacks %q", s.Key, part)
			}
		}
	}
	for _, secret := range []string{"0123456789abcdef", "fedcba9876543210", "hunter2"} {
		if strings.Contains(string(printed), secret) {
			t.Errorf("the print contains the secret %q", secret)
		}
	}
	if got := strings.Count(string(printed), redacted); got != 3 {
		t.Errorf("%d redacted values, want 3", got)
	}
}
