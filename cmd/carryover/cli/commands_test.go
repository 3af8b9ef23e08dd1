package cli

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

// ranWith runs the whole program with an environment.
func ranWith(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a start that is not refused serves until then
	defer cancel()
	code = Run(ctx, args, env, &out, &errOut)
	return code, out.String(), errOut.String()
}

// What is mistyped is refused with what may be meant, and with no guess where nothing is near.
func TestCommands_Typos(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "c.yaml")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return "check-config --config " + path
	}
	for _, tc := range []struct{ name, args, env, want string }{
		{"command", "doctro", "", `unknown command or argument "doctro"; did you mean doctor? See carryover --help`},
		{"command with a capital letter", "Demo", "", `unknown command or argument "Demo"; did you mean demo? See carryover --help`},
		{"nothing near", "frobnicate", "", `unknown command or argument "frobnicate"; see carryover --help`},
		{"shell", "completion bsh", "", `unknown command or argument "bsh"; did you mean bash? See carryover completion --help`},
		{"flag", "--max-stream 3", "", "unknown flag: --max-stream; did you mean --max-streams?"},
		{"flag of a command", "serve --handback off", "", "unknown flag: --handback; did you mean --hand-back?"},
		{"flag of another order", "--timeout-idle 3s", "", "unknown flag: --timeout-idle; did you mean --idle-timeout?"},
		{"flag with one dash", "-port 3", "", "unknown shorthand flag: 'p' in -port; did you mean --port?"},
		{"flag of the demo", "demo --turn 3", "", "unknown flag: --turn; did you mean --turns?"},
		{"flag, nothing near", "--frobnicate", "", "unknown flag: --frobnicate"},
		{"value", "--routing-prefill least-loaded", "", "; did you mean least_loaded?"},
		{"value in a list", "--conversation-sources metdata", "", "; did you mean metadata?"},
		{"value by variable", "check-config", "CARRYOVER_LOG_LEVEL=wran", "; did you mean warn?"},
		{"value in the file", file("log: {level: debg}\n"), "", "; did you mean debug?"},
		{"value of the demo", "demo --connector nixle", "", "; did you mean nixl?"},
		{"key", file("limits: {max_stream: 3}\n"), "", "; did you mean max_streams?"},
		{"key as a flag is written", file("limits: {max-streams: 3}\n"), "", "; did you mean max_streams?"},
		{"key of a section", file("max_streams: 3\n"), "", "; did you mean limits.max_streams?"},
		{"key by its flag", file("disagg-threshold: 3\n"), "", "; did you mean routing.disagg_threshold?"},
		{"section", file("limit: {max_streams: 3}\n"), "", "; did you mean limits?"},
		{"key of an instance", file("prefill: [{url: \"http://p:1\", nmae: x}]\n"), "", "; did you mean name?"},
		{"variable", "check-config", "CARRYOVER_MAX_STREAM=3", `environment: CARRYOVER_MAX_STREAM is not a variable of Carryover; did you mean CARRYOVER_MAX_STREAMS?`},
		{"variable of a secret", "check-config", "CARRYOVER_ADMIN_TOKN=hunter2hunter2hunter2", `environment: CARRYOVER_ADMIN_TOKN is not a variable of Carryover; did you mean CARRYOVER_ADMIN_TOKEN?`},
		{"variable at the start", "--host 127.0.0.1 --port 0 --admin-listen off", "CARRYOVER_CONFG=x", `environment: CARRYOVER_CONFG is not a variable of Carryover; did you mean CARRYOVER_CONFIG?`},
		{"variable, doctor", "doctor", "CARRYOVER_DECODES=x", `environment: CARRYOVER_DECODES is not a variable of Carryover; did you mean CARRYOVER_DECODE?`},
		{"variable, nothing near", "check-config", "CARRYOVER_FROBNICATE=1", "environment: CARRYOVER_FROBNICATE is not a variable of Carryover; variables are named after flags, see carryover --help-all"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := ranWith(t, []string{tc.env}, strings.Fields(tc.args)...)
			if !strings.HasSuffix(strings.TrimSuffix(stderr, "\n"), tc.want) || code != command.ExitUsage {
				t.Errorf("exit code %d, want %d, and at the end of\n%s\nthis: %s", code, command.ExitUsage, stderr, tc.want)
			}
			if strings.Contains(stderr, "hunter2") {
				t.Errorf("the value of a variable is shown: %s", stderr)
			}
		})
	}
}

// Variables that others set are no typos: those of other programs, and those that Kubernetes and Docker make of the names of services.
func TestCommands_VariablesOfOthers(t *testing.T) {
	for _, variable := range []string{
		"OTEL_SERVICE_NAME=x", "VLLM_PORT=1", "CARRYOVERS=1", "CARRYOVER=1", "CARRYOVER_FROBNICATE=",
		"CARRYOVER_SERVICE_HOST=10.0.0.1", "CARRYOVER_SERVICE_PORT=80", "CARRYOVER_SERVICE_PORT_HTTP=80", "CARRYOVER_PORT=tcp://10.0.0.1:80",
		"CARRYOVER_PORT_80_TCP=tcp://10.0.0.1:80", "CARRYOVER_PORT_80_TCP_PROTO=tcp", "CARRYOVER_PORT_80_TCP_PORT=80", "CARRYOVER_PORT_80_TCP_ADDR=10.0.0.1",
		"CARRYOVER_REDIS_SERVICE_HOST=10.0.0.1", "CARRYOVER_REDIS_PORT=tcp://10.0.0.1:6379", "CARRYOVER_REDIS_PORT_6379_TCP_ADDR=10.0.0.1",
	} {
		if code, _, stderr := ranWith(t, []string{variable}, "check-config"); code != command.ExitOK {
			t.Errorf("%s: exit code %d, %s", variable, code, stderr)
		}
	}
}

func TestCommands_Version(t *testing.T) {
	for _, args := range []string{"--version", "-v"} {
		if code, stdout, stderr := runCommand(t, args); code != command.ExitOK || stdout != command.VersionText() || stderr != "" {
			t.Errorf("carryover %s: exit code %d, %q, %q; want %q", args, code, stdout, stderr, command.VersionText())
		}
	}
}

func TestCommands_Completion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, stdout, stderr := runCommand(t, "completion", shell); code != command.ExitOK || !strings.Contains(stdout, "carryover") || stderr != "" {
			t.Errorf("completion %s: exit code %d, %d bytes, %q", shell, code, len(stdout), stderr)
		}
	}
	// What the scripts ask at each tab.
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"do"}, []string{"doctor"}},
		{[]string{"--admin-"}, []string{"--admin-listen", "--admin-token-file"}},
		{[]string{"--log-level", ""}, []string{"debug", "info", "warn", "error"}},
		{[]string{"serve", "--routing-decode", "p"}, []string{"prefix", "power_of_two"}},
		{[]string{"demo", "--connector", "ni"}, []string{"nixl"}},
	} {
		code, stdout, _ := runCommand(t, append([]string{"__complete"}, tc.args...)...)
		for _, want := range tc.want {
			if code != command.ExitOK || !strings.Contains("\n"+stdout, "\n"+want) {
				t.Errorf("%q: exit code %d, lacks %s:\n%s", tc.args, code, want, stdout)
			}
		}
	}
}

func TestCommands_ManPages(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "man")
	if code, _, stderr := runCommand(t, "man", folder); code != command.ExitOK {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	for name, want := range map[string]string{
		"carryover.1": "max-streams", "carryover-doctor.1": "strict", "carryover-demo.1": "turns",
	} {
		page, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !bytes.HasPrefix(page, []byte(".nh\n.TH ")) || !strings.Contains(string(page), want) {
			t.Errorf("%s lacks %s: %v, %.300s", name, want, err, page)
		}
	}
	if code, _, stderr := runCommand(t, "man"); code != command.ExitUsage || !strings.Contains(stderr, "man takes one argument") {
		t.Errorf("without a folder: exit code %d, %s", code, stderr)
	}
}

// The short help has what people need; --help-all has every setting (TestHelp_ShowsEverySettingWithItsDefault).
func TestHelp_ShowsTwentySettings(t *testing.T) {
	for _, words := range [][]string{nil, {"serve"}, {"check-config"}, {"doctor"}} {
		code, help, _ := runCommand(t, append(words, "--help")...)
		cfg := config.Default()
		shown := 0
		for _, s := range config.Settings(&cfg) {
			if s.Flag != "" && strings.Contains(help, "\n  --"+s.Flag+" ") {
				shown++
			}
		}
		if code != command.ExitOK || shown != 20 {
			t.Errorf("carryover %s --help: exit code %d, %d settings, want 20", words, code, shown)
		}
		for _, flag := range []string{"--prefill", "--decode", "--connector", "--redis-url", "--help-all"} {
			if !strings.Contains(help, "\n  "+flag+" ") {
				t.Errorf("carryover %s --help does not show %s", words, flag)
			}
		}
	}
}

func TestProbe_StatusDecides(t *testing.T) {
	for status, want := range map[int]int{
		http.StatusOK:                 command.ExitOK,
		http.StatusNoContent:          command.ExitOK,
		http.StatusFound:              command.ExitRuntime,
		http.StatusNotFound:           command.ExitRuntime,
		http.StatusServiceUnavailable: command.ExitRuntime,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/readyz" {
					t.Errorf("request %s %s, want GET /readyz", r.Method, r.URL.Path)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
			}))
			defer server.Close()
			code, stdout, stderr := runCommand(t, "probe", server.URL+"/readyz")
			if code != want || stdout != "" || (stderr == "") != (want == command.ExitOK) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %d", code, stdout, stderr, want)
			}
		})
	}
}

func TestProbe_NobodyAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	if err := probe(t.Context(), server.URL, 10*time.Millisecond); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("probe of a silent server: %v, want deadline exceeded", err)
	}
	server.Close()
	if code, _, stderr := runCommand(t, "probe", server.URL); code != command.ExitRuntime || !strings.HasPrefix(stderr, "carryover: probe: ") {
		t.Errorf("exit code %d, stderr %q; want %d and a carryover: line", code, stderr, command.ExitRuntime)
	}
}

func TestRevision_TellsAModifiedTree(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "c0ffee"}
	for _, tc := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{commit, {Key: "vcs.modified", Value: "false"}}, "c0ffee"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, commit}, "c0ffee (modified)"},
		{[]debug.BuildSetting{{Key: "GOOS", Value: "linux"}}, ""},
	} {
		if got := command.Revision(tc.settings); got != tc.want {
			t.Errorf("revision(%v) = %q, want %q", tc.settings, got, tc.want)
		}
	}
}

// Tests are built without a revision, as the image is.
func TestVersion_LeavesOutWhatIsNotKnown(t *testing.T) {
	if said := command.VersionText(); !strings.HasPrefix(said, "carryover dev\ngo") || strings.Count(said, "\n") != 2 || strings.Contains(said, "revision") {
		t.Errorf("got %q, want the version and Go's alone", said)
	}
}
