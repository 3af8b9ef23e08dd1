package migrate

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/command/commandtest"
	"carryover/cmd/carryover/config/configtest"
)

// translated runs migrate-flags and has a shell read what it prints, as somebody who pastes it would.
func translated(t *testing.T, args ...string) (flags []string, comments string) {
	t.Helper()
	code, stdout, stderr := runCommand(t, append([]string{"migrate-flags", "--"}, args...)...)
	if code != command.ExitOK || stderr != "" {
		t.Fatalf("migrate-flags %q: exit code %d\n%s", args, code, stderr)
	}
	words, err := exec.CommandContext(t.Context(), "sh", "-c", `carryover() { printf '%s\n' "$@"; }`+"\n"+stdout).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "#") {
			comments += line
		}
	}
	list := strings.Split(strings.TrimSuffix(string(words), "\n"), "\n")
	if _, err := configtest.LoadFiles(t, list); err != nil {
		t.Errorf("migrate-flags %q prints %q, which is refused: %v", args, list, err)
	}
	for i := 0; i+1 < len(list); i += 2 {
		flags = append(flags, list[i]+" "+list[i+1])
	}
	return flags, comments
}

const oneRegistry = `{"http://d:8000": {"receiver_host":"d","receiver_init_port":[7300],"receiver_alloc_port":[7400]}}`

func TestMigrate_Router(t *testing.T) {
	static := []string{
		"--service-discovery", "static", "--static-backends", "http://p1:8000,http://p2:8000, http://d:8000", "--static-models=m,m,m",
		"--static-model-labels", "p,q,d", "--prefill-model-labels", "p,q", "--decode-model-labels=d",
	}
	instances := []string{"--prefill http://p1:8000", "--prefill http://p2:8000", "--decode http://d:8000"}
	whole := func(policy string) []string {
		return []string{
			"--port 8001", "--routing-prefill " + policy, "--routing-decode " + policy, "--disagg-threshold 1073741824",
			"--prefill http://a:1", "--prefill http://b:2", "--decode http://a:1", "--decode http://b:2",
		}
	}
	for _, tc := range []struct {
		name  string
		args  []string
		want  []string
		notes []string
	}{
		{
			"orchestrated, Kubernetes",
			[]string{
				"--routing-logic=disaggregated_prefill_orchestrated", "--service-discovery=k8s", "--k8s-label-selector=app in (prefill,decode)",
				"--prefill-model-labels=prefill", "--decode-model-labels=decode",
			},
			[]string{
				"--port 8001", "--connector orchestrated", "--k8s-label-selector app in (prefill,decode)", "--k8s-namespace default", "--k8s-port 8000",
				"--prefill-model-labels prefill", "--decode-model-labels decode",
			},
			[]string{"# From the flags of the router of vLLM's production-stack:", "--connector nixl does that too", "Instances are taken in turn there"},
		},
		{
			"shared storage", append([]string{"--routing-logic", "disaggregated_prefill", "--host", "127.0.0.1", "--port", "9", "--log-level", "warning"}, static...),
			slices.Concat([]string{"--host 127.0.0.1", "--port 9", "--connector lmcache-storage"}, instances, []string{"--log-level warn"}),
			[]string{"share LMCache's storage", "# --static-models: each instance is asked at /v1/models"},
		},
		{
			"a ZeroMQ listener alone is still shared storage", append([]string{"--routing-logic", "disaggregated_prefill", "--nixl-proxy-host", "0.0.0.0"}, static...),
			slices.Concat([]string{"--port 8001", "--connector lmcache-storage"}, instances), []string{"# --nixl-proxy-host: has no effect there"},
		},
		{
			"threshold, NIXL", append([]string{"--routing-logic", "disaggregated_prefill", "--routing-threshold", "4096", "--load-balancing-strategy", "least_loaded"}, static...),
			slices.Concat([]string{"--port 8001", "--connector nixl", "--routing-prefill least_loaded", "--routing-decode least_loaded", "--disagg-threshold 4096"}, instances), nil,
		},
		{
			"NIXL by name", append([]string{"--routing-logic", "disaggregated_prefill", "--disagg-connector-type", "nixl", "--routing-threshold=0"}, static...),
			slices.Concat([]string{"--port 8001", "--connector nixl"}, instances), nil,
		},
		{
			"LMCache, registry", append([]string{"--routing-logic", "disaggregated_prefill", "--disagg-connector-type=lmcache", "--decoder-registry", oneRegistry}, static...),
			slices.Concat([]string{"--port 8001", "--connector lmcache", "--decoder-registry " + oneRegistry, "--lmcache-listen 0.0.0.0:7500"}, instances),
			[]string{"the router does not wait for KV"},
		},
		{
			"LMCache, one decode instance",
			append([]string{"--routing-logic", "disaggregated_prefill", "--disagg-connector-type=lmcache", "--decoder-host", "10.0.0.3", "--decoder-init-port", "7300,7301", "--decoder-alloc-port=7400,7401"}, static...),
			slices.Concat([]string{
				"--port 8001", "--connector lmcache", "--lmcache-decoder-host 10.0.0.3", "--lmcache-init-ports 7300,7301", "--lmcache-alloc-ports 7400,7401", "--lmcache-listen 0.0.0.0:7500",
			}, instances), nil,
		},
		{
			"LMCache with notifications",
			append([]string{"--routing-logic", "disaggregated_prefill", "--nixl-peer-host", "d", "--nixl-proxy-host", "0.0.0.0", "--nixl-finished-req-ttl", "120"}, static...),
			slices.Concat([]string{"--port 8001", "--connector lmcache", "--lmcache-init-ports 7300", "--lmcache-alloc-ports 7400", "--lmcache-listen 0.0.0.0:7500"}, instances),
			[]string{"asks it after 10 s all the same", "# --nixl-finished-req-ttl: notifications that no turn waits for"},
		},
		{
			"LMCache with notifications, other ports",
			append([]string{
				"--routing-logic", "disaggregated_prefill", "--nixl-peer-host=d", "--nixl-proxy-host=10.0.0.1", "--nixl-proxy-port", "7501", "--nixl-peer-init-port", "1", "--nixl-peer-alloc-port", "2",
				"--session-key", "x-session-id",
			}, static...),
			slices.Concat([]string{
				"--port 8001", "--connector lmcache", "--lmcache-init-ports 1", "--lmcache-alloc-ports 2", "--lmcache-listen 10.0.0.1:7501", "--conversation-sources header:X-Session-Id",
			}, instances), nil,
		},
		{"whole instances in turn", []string{"--routing-logic", "roundrobin", "--static-backends", "http://a:1,http://b:2"}, whole("round_robin"), []string{"each turn stays on one instance"}},
		{"by prefix", []string{"--routing-logic", "prefixaware", "--static-backends", "http://a:1,http://b:2"}, whole("prefix"), nil},
		{"by LMCache's controller", []string{"--routing-logic", "kvaware", "--lmcache-controller-port", "9000", "--static-backends", "http://a:1,http://b:2"}, whole("prefix"), []string{"controller is not asked"}},
		{"by load", []string{"--routing-logic", "priority", "--static-backends", "http://a:1,http://b:2"}, whole("least_loaded"), nil},
		{
			"by session", []string{"--routing-logic", "session", "--session-key", "x-user-id", "--static-backends", "http://a:1,http://b:2"}, whole("affinity"),
			[]string{"a header x-user-id is not read"},
		},
		{
			"Kubernetes by service, without selector", []string{"--routing-logic", "disaggregated_prefill", "--service-discovery", "k8s", "--k8s-service-discovery-type", "service-name", "--k8s-namespace", "ns", "--k8s-port", "80"},
			[]string{
				"--port 8001", "--connector lmcache-storage", "--k8s-label-selector model in (prefill,decode)", "--k8s-namespace ns", "--k8s-port 80",
				"--prefill-model-labels prefill", "--decode-model-labels decode", "--k8s-resource endpointslices",
			},
			[]string{"empty there, all pods", "EndpointSlices must have the label"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, comments := translated(t, tc.args...)
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
			for _, note := range tc.notes {
				if !strings.Contains(comments, note) {
					t.Errorf("comments lack %q:\n%s", note, comments)
				}
			}
		})
	}
}

func TestMigrate_ExampleProxies(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{
			"multi-turn", strings.Fields("--host 0.0.0.0 --port 8000 --prefiller-hosts a b --prefiller-ports 1 2 --decoder-host c"),
			[]string{"--host 0.0.0.0", "--port 8000", "--prefill http://a:1", "--prefill http://b:2", "--decode http://c:8200"},
		},
		{
			"LMCache, counted", strings.Fields("--prefiller-host p --prefiller-port 7100 --num-prefillers 2 --decoder-host d --decoder-port 7200 --num-decoders 2 --decoder-init-port 7300,7310 --decoder-alloc-port 7400,7410 --proxy-host 0.0.0.0 --proxy-port 7500 --port 9100"),
			[]string{
				"--host localhost", "--port 9100", "--connector lmcache", "--prefill http://p:7100", "--prefill http://p:7101", "--decode http://d:7200", "--decode http://d:7201",
				`--decoder-registry {"http://d:7200":{"receiver_alloc_port":[7400,7410],"receiver_host":"d","receiver_init_port":[7300,7310]},` +
					`"http://d:7201":{"receiver_alloc_port":[7401,7411],"receiver_host":"d","receiver_init_port":[7301,7311]}}`,
				"--lmcache-listen 0.0.0.0:7500",
			},
		},
		{
			"LMCache, lists", strings.Fields("--prefiller-host p --decoder-host d,e --decoder-init-port 8300 --model m --pd-buffer-size 1"),
			[]string{
				"--host localhost", "--connector lmcache", "--prefill http://p:8100", "--decode http://d:8200", "--decode http://e:8200",
				`--decoder-registry {"http://d:8200":{"receiver_alloc_port":[8400],"receiver_host":"d","receiver_init_port":[8300]},` +
					`"http://e:8200":{"receiver_alloc_port":[8400],"receiver_host":"e","receiver_init_port":[8300]}}`,
				"--lmcache-listen localhost:8500",
			},
		},
		{
			"Mooncake", strings.Fields("--prefill http://a:8010 9000 --prefill http://b:8010 9000 --decode http://c:8020"),
			[]string{"--host 127.0.0.1", "--connector mooncake", "--prefill http://a:8010", "--prefill http://b:8010", "--mooncake-bootstrap-port 9000", "--decode http://c:8020"},
		},
		{
			"Mooncake, usual port", strings.Fields("--prefill http://a:8010 --prefill http://b:8010 none --decode http://c:8020 --port 8001"),
			[]string{"--host 127.0.0.1", "--port 8001", "--connector mooncake", "--prefill http://a:8010", "--prefill http://b:8010", "--mooncake-bootstrap-port 8998", "--decode http://c:8020"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := translated(t, tc.args...); !slices.Equal(got, tc.want) {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestMigrate_Refuses(t *testing.T) {
	const logic = "--routing-logic disaggregated_prefill "
	for _, tc := range []struct{ args, want string }{
		{"--no-such 1 --other=2", "carryover: none of these is a flag of a proxy that is known"},
		{"--host", "carryover: --host: want a value"},
		{"--log-stats=1 --routing-logic roundrobin", "carryover: --log-stats: want no value"},
		{"--static-backends http://a", "carryover: --routing-logic: want disaggregated_prefill,"},
		{logic, "carryover: --static-backends: want the URLs"},
		{logic + "--static-backends http://a,http://b", "carryover: --static-model-labels: want a label for each of the 2 backends"},
		{logic + "--static-backends http://a,http://b --static-model-labels p,d --prefill-model-labels p", "carryover: --decode-model-labels: want a label that a backend has"},
		{logic + "--static-backends a,http://b --static-model-labels p,d --prefill-model-labels p --decode-model-labels d", "carryover: translated, but refused:\ncarryover: prefill[0].url: \"a\""},
		{logic + "--disagg-connector-type lmcache --static-backends http://a,http://b --static-model-labels p,d --prefill-model-labels p --decode-model-labels d",
			"carryover: translated, but refused:\ncarryover: connector.name: \"lmcache\" (--connector): want lmcache.decoder_registry,"},
		{logic + "--load-balancing-strategy best --static-backends http://a", "carryover: --load-balancing-strategy: want round_robin or least_loaded"},
		{logic + "--disagg-connector-type p2p --static-backends http://a", "carryover: --disagg-connector-type: want nixl or lmcache"},
		{"--routing-logic roundrobin --static-backends http://a --log-level loud", "carryover: --log-level: want critical,"},
		{"--prefill http://a 1 --prefill http://b 2 --decode http://c", "carryover: --prefill: want one bootstrap port"},
		{"--prefill http://a", "carryover: --decode: want the URL of an instance"},
		{"--num-decoders 100 --decoder-init-port 1", "carryover: --num-decoders: want a number from 1 to 64"},
		{"--proxy-port 1 --decoder-init-port x", "carryover: --decoder-init-port: want ports"},
		{"--prefiller-hosts a b --prefiller-ports 1", "carryover: --prefiller-host: want as many hosts as ports, got 2 hosts and 1 ports"},
	} {
		code, stdout, stderr := runCommand(t, append([]string{"migrate-flags", "--"}, strings.Fields(tc.args)...)...)
		if code != command.ExitRuntime || stdout != "" || !strings.HasPrefix(stderr, tc.want) {
			t.Errorf("migrate-flags -- %s: exit code %d, stdout %q, stderr\n%s\nwant exit code %d, and\n%s", tc.args, code, stdout, stderr, command.ExitRuntime, tc.want)
		}
	}
}

// Flags that are not known are listed, and the others translated.
func TestMigrate_ListsWhatItDoesNotKnow(t *testing.T) {
	got, comments := translated(t, "--routing-logic", "roundrobin", "--static-backends", "http://a:1", "--no-such", "1", "--other=2", "--port", "1", "a\nword")
	if !slices.Contains(got, "--port 1") || !slices.Contains(got, "--prefill http://a:1") {
		t.Errorf("got %q", got)
	}
	for _, want := range []string{"# NOT TRANSLATED: --no-such is not a flag of the router", "# NOT TRANSLATED: --other is not", `# NOT TRANSLATED: "a\nword" is not a flag`} {
		if !strings.Contains(comments, want) {
			t.Errorf("comments lack %q:\n%s", want, comments)
		}
	}
}

func TestMigrate_ValuesStayWithinCommentsAndQuotes(t *testing.T) {
	flags, _ := translated(t, "--routing-logic", "session", "--session-key", "a\necho b", "--static-backends", "http://a:1", "--host", "h'x$(id)", "--host", "localhost")
	if len(flags) != 7 || flags[0] != "--host localhost" {
		t.Errorf("the shell reads %q", flags)
	}
	if got, want := shellQuoted("it's $(id)"), `'it'\''s $(id)'`; got != want {
		t.Errorf("quoted %s, want %s", got, want)
	}
}

func TestMigrate_HelpAndFlagsWithoutDashes(t *testing.T) {
	for _, args := range []string{"migrate-flags", "migrate-flags --help", "migrate-flags -- -h"} {
		if code, stdout, _ := runCommand(t, strings.Fields(args)...); code != command.ExitOK || !strings.HasPrefix(stdout, "Print the carryover command line") {
			t.Errorf("carryover %s: exit code %d, %q", args, code, stdout)
		}
	}
	if code, stdout, stderr := runCommand(t, strings.Fields("migrate-flags --decoder-host c d --decoder-port 1 2")...); code != command.ExitOK || !strings.Contains(stdout, "--decode http://d:2\n") {
		t.Errorf("without --: exit code %d, %q %s", code, stdout, stderr)
	}
}

// TestMigrate_EveryFlagIsDocumented compares the router's flags with the table of docs/connectors.md.
func TestMigrate_EveryFlagIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/connectors.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := flagTable(routerFlags()); !strings.Contains(string(page), "\n"+want) {
		t.Errorf("docs/connectors.md lacks this table of the router's flags:\n%s", want)
	}
}

// flagTable is a table of another proxy's flags in Markdown. Neighbours of which the same is said share a row.
func flagTable(flags []theirFlag) string {
	var b strings.Builder
	b.WriteString("| flag there | here | |\n|---|---|---|\n")
	for i := 0; i < len(flags); i++ {
		f := flags[i]
		names := "`--" + f.name + "`"
		for f.ours == "" && i+1 < len(flags) && flags[i+1].ours == "" && flags[i+1].remark == f.remark {
			i++
			names += ", `--" + flags[i].name + "`"
		}
		ours := f.ours
		if ours == "" {
			ours = "–"
		}
		b.WriteString("| " + names + " | " + ours + " | " + f.remark + " |\n")
	}
	return b.String()
}

func runCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return commandtest.Run(t, NewCommand(), args...)
}
