package config

import (
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"carryover/upstream"
)

// withoutFlag are the only settings that a command line cannot express, with their variables: a process list shows
// flags.
var withoutFlag = map[string]string{
	"conversation.secret": "CARRYOVER_SECRET",
	"auth.upstream_key":   "OPENAI_API_KEY",
	"admin.token":         "CARRYOVER_ADMIN_TOKEN",
}

// leafFields lists the addresses of all fields of a section, and of those of the sections within.
func leafFields(section reflect.Value, path string) map[any]string {
	leaves := map[any]string{}
	for i := range section.NumField() {
		field, name := section.Field(i), path+"."+section.Type().Field(i).Name
		if field.Kind() != reflect.Struct {
			leaves[field.Addr().Interface()] = name
			continue
		}
		for to, name := range leafFields(field, name) {
			leaves[to] = name
		}
	}
	return leaves
}

func TestSettings_EveryFieldHasKeyFlagVariableAndHelp(t *testing.T) {
	var cfg Config
	fields := leafFields(reflect.ValueOf(&cfg).Elem(), "Config")
	seen := map[string]string{}
	for _, s := range Settings(&cfg) {
		name, ok := fields[s.To]
		if !ok {
			t.Errorf("%s: two rows for one field, or a row for none", s.Key)
		}
		delete(fields, s.To)
		if s.Key == "" || s.Help == "" {
			t.Errorf("%s: key %q, help %q; want both", name, s.Key, s.Help)
		}
		if variable, exempt := withoutFlag[s.Key]; exempt {
			if s.Flag != "" || s.Variable() != variable {
				t.Errorf("%s: flag %q, variable %q; want none and %q", s.Key, s.Flag, s.Variable(), variable)
			}
		} else if want := "CARRYOVER_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_")); s.Flag == "" || s.Variable() != want {
			t.Errorf("%s: flag %q, variable %q; want a flag and %q", s.Key, s.Flag, s.Variable(), want)
		}
		for _, id := range []string{"key " + s.Key, "--" + s.Flag, "$" + s.Variable()} {
			if other, taken := seen[id]; taken && len(id) > 2 {
				t.Errorf("%s and %s share %s", s.Key, other, id)
			}
			seen[id] = s.Key
		}
	}
	for _, name := range fields {
		t.Errorf("%s has no row in settings", name)
	}
}

// loadSources merges sources as a command does, with configuration files looked up in testdata/config.
func loadSources(t *testing.T, args []string, env ...string) (Config, error) {
	t.Helper()
	if _, err := os.Stat("accepted-full.yaml"); err != nil { // else a call before this one has led there
		t.Chdir("../../../testdata/config")
	}
	for _, name := range []string{"secret-file.txt", "secret-short.txt", "redis-password.txt", "accepted-empty.yaml"} {
		if err := os.Chmod(name, 0o644); err != nil { // git leaves them writable for the group where the umask does
			t.Fatal(err)
		}
	}
	return loaded(args, env)
}

// loaded is the configuration of a command line and of variables.
func loaded(args, env []string) (Config, error) {
	cmd := &cobra.Command{}
	cmd.SetOut(io.Discard)
	flags := AddFlags(cmd)
	if err := cmd.ParseFlags(ExpandLists(args)); err != nil {
		return Config{}, err
	}
	return NewLoader().Load(Environment(env), flags)
}

// fullRows gives the settings of accepted-full.yaml, and those of other connectors out of the files that are called after them, whose
// values all differ from the defaults.
func fullRows(t *testing.T) []Setting {
	t.Helper()
	load := func(name string) []Setting {
		cfg, err := loadSources(t, []string{"--config", "accepted-" + name + ".yaml"})
		must(t, err)
		return Settings(&cfg)
	}
	rows := load("full")
	for _, connector := range []string{ConnectorOrchestrated, ConnectorLMCache, ConnectorMooncake} {
		for i, s := range load(connector) {
			if needs(s.Key) == "connector.name "+connector {
				rows[i] = s
			}
		}
	}
	return rows
}

func TestSettings_FileReachesEveryField(t *testing.T) {
	defaults, full := Default(), fullRows(t)
	for i, s := range Settings(&defaults) {
		got := reflect.ValueOf(full[i].To).Elem().Interface()
		if reflect.DeepEqual(got, reflect.ValueOf(s.To).Elem().Interface()) {
			t.Errorf("%s: %v from accepted-full.yaml, want a value that is not the default", s.Key, got)
		}
	}
}

// TestSettings_FlagAndVariableReachEveryField gives one setting at a time, so that no other source can stand in for it.
func TestSettings_FlagAndVariableReachEveryField(t *testing.T) {
	for i, full := range fullRows(t) {
		value := FormatValue(full.To)
		if secret, ok := full.To.(*Secret); ok {
			value = string(*secret)
		}
		check := func(how string, merge func(l *Loader)) {
			t.Helper()
			l := NewLoader()
			merge(l)
			if len(l.faults) > 0 {
				t.Errorf("%s: %v", how, l.faults)
			}
			if got := FormatValue(l.rows[i].To); got != FormatValue(full.To) {
				t.Errorf("%s gives %s = %q, want %q", how, full.Key, got, FormatValue(full.To))
			}
		}
		if name := full.Variable(); name != "" {
			check(name, func(l *Loader) { l.applyEnv(map[string]string{name: value}) })
		}
		if full.Flag == "" {
			continue
		}
		for _, args := range [][]string{{"--" + full.Flag + "=" + value}, {"--" + full.Flag, value}} {
			if _, isBool := full.To.(*bool); isBool && len(args) == 2 {
				args = args[:1] // a switch alone means true
			}
			check(strings.Join(args, " "), func(l *Loader) {
				cmd := &cobra.Command{}
				flags := AddFlags(cmd)
				must(t, cmd.ParseFlags(args))
				l.applyFlags(flags)
			})
		}
	}
}

func TestLoad_Precedence(t *testing.T) {
	const file, fromEnv = "CARRYOVER_CONFIG=accepted-small.yaml", "CARRYOVER_TTL=230s"
	for _, tc := range []struct {
		name, args string
		env        []string
		ttl        string
		prefill    string
	}{
		{"defaults", "", nil, "450s", "http://localhost:8100"},
		{"file", "", []string{file}, "240s", "http://10.0.0.1:8100,http://10.0.0.2:8100"},
		{"environment over file", "", []string{file, fromEnv}, "230s", "http://10.0.0.1:8100,http://10.0.0.2:8100"},
		{"flag over environment", "--ttl 220s", []string{file, fromEnv}, "220s", "http://10.0.0.1:8100,http://10.0.0.2:8100"},
		{"last flag wins", "--ttl 220s --ttl 210s", nil, "210s", "http://localhost:8100"},
		{"file by flag over file by variable", "--config accepted-empty.yaml", []string{file}, "450s", "http://localhost:8100"},
		{"empty variable is unset", "", []string{file, "CARRYOVER_TTL=", "CARRYOVER_PREFILL="}, "240s", "http://10.0.0.1:8100,http://10.0.0.2:8100"},
		{"list by variable", "", []string{file, "CARRYOVER_PREFILL=http://a:1, http://b:2"}, "240s", "http://a:1,http://b:2"},
		{"list by flags", "--prefill http://c:1 --prefill http://d:2", []string{file, "CARRYOVER_PREFILL=http://a:1"}, "240s", "http://c:1,http://d:2"},
		{"list by the example's flags", "--prefiller-host e", []string{file, "CARRYOVER_PREFILL=http://a:1"}, "240s", "http://e:8100"},
		{"Kubernetes service link", "", []string{"CARRYOVER_PORT=tcp://10.0.0.11:8000"}, "450s", "http://localhost:8100"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := loadSources(t, strings.Fields(tc.args), tc.env...)
			must(t, err)
			if got := FormatDuration(cfg.Store.TTL); got != tc.ttl {
				t.Errorf("ttl %s, want %s", got, tc.ttl)
			}
			if got := urls(cfg.Prefill); got != tc.prefill {
				t.Errorf("prefill %s, want %s", got, tc.prefill)
			}
		})
	}
}

// TestLoad_SourcesByDefault keeps out what applications send for all of their users.
func TestLoad_SourcesByDefault(t *testing.T) {
	cfg, err := loadSources(t, nil)
	must(t, err)
	got := strings.Join(cfg.Conversation.Sources, " ")
	if want := "conversation_id conversation header:X-Conversation-Id session_id header:X-Session-Id client_headers metadata"; got != want {
		t.Errorf("default sources %s, want %s", got, want)
	}
	if cfg, err = loadSources(t, []string{"--conversation-sources", "prompt_cache_key"}); err != nil || !slices.Equal(cfg.Conversation.Sources, []string{"prompt_cache_key"}) {
		t.Errorf("got %q, %v; want prompt_cache_key selected", cfg.Conversation.Sources, err)
	}
}

func TestLoad_InstancesAreComplete(t *testing.T) {
	cfg, err := loadSources(t, []string{"--config", "accepted-small.yaml", "--kv-host", "pin"})
	must(t, err)
	want := []InstanceConfig{
		{Instance: upstream.Instance{BaseURL: "http://10.0.0.3:8200", Name: "d-big", KVHost: "pin", KVTTL: cfg.Store.DecoderKVTTL, Weight: 1}},
		{Instance: upstream.Instance{BaseURL: "https://decode.example", Name: "decode.example", KVHost: "pin", KVTTL: 300e9, Weight: 1}},
	}
	if !slices.Equal(cfg.Decode, want) {
		t.Errorf("decode\n got %+v\nwant %+v", cfg.Decode, want)
	}
	if got, want := cfg.Prefill[1], (InstanceConfig{Instance: upstream.Instance{BaseURL: "http://10.0.0.2:8100", Name: "10.0.0.2:8100", KVHost: "pin", Weight: 1}}); got != want {
		t.Errorf("prefill[1] %+v, want %+v", got, want)
	}
}

// TestLoad_ReplacedInstancesLeaveNothingBehind covers the fields that only a file can set per instance.
func TestLoad_ReplacedInstancesLeaveNothingBehind(t *testing.T) {
	for _, args := range []string{"--decode http://x:1 --decode http://y:1", "--decoder-host x y --decoder-port 1 1"} {
		cfg, err := loadSources(t, strings.Fields("--config accepted-small.yaml "+args))
		must(t, err)
		if got, want := cfg.Decode[1], (InstanceConfig{Instance: upstream.Instance{BaseURL: "http://y:1", Name: "y:1", KVHost: "auto", KVTTL: 480e9, Weight: 1}}); got != want {
			t.Errorf("%s: decode[1] %+v, want %+v", args, got, want)
		}
	}
}

func TestLoad_SecretFromFileLosesItsLineEnd(t *testing.T) {
	fromFile, err := loadSources(t, []string{"--secret-file", "secret-file.txt"})
	must(t, err)
	fromEnv, err := loadSources(t, nil, "CARRYOVER_SECRET=correct-horse-battery-staple\n")
	must(t, err)
	const want = "correct-horse-battery-staple"
	if a, b := string(fromFile.Conversation.Secret), string(fromEnv.Conversation.Secret); a != want || b != want {
		t.Errorf("secret %q from the file, %q from the environment; want %q from both", a, b, want)
	}
}

func TestLoad_BadValueOfALowerSourceIsStillAFault(t *testing.T) {
	_, err := loadSources(t, []string{"--ttl", "100s"}, "CARRYOVER_TTL=soon", "CARRYOVER_SECRET=hunter2")
	want := `store.ttl: "soon" (CARRYOVER_TTL): want a Go duration such as 450s` + "\n" +
		`conversation.secret: "7 bytes" (CARRYOVER_SECRET): want at least 16 bytes`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// served is the configuration of a command line, whose words spaces separate.
func served(t *testing.T, commandLine string) (Config, error) {
	t.Helper()
	return loaded(strings.Fields(commandLine), nil)
}

func urls(list []InstanceConfig) string { return FormatValue(&list) }
