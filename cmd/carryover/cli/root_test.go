package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// served runs a command line in which serve only records the configuration that it gets.
func served(t *testing.T, commandLine string, env ...string) (config.Config, error) {
	t.Helper()
	var got config.Config
	calls := 0
	root := NewRootCommand(config.Environment(env), func(_ context.Context, cfg app.Configured, _ io.Writer) error {
		calls++
		got = cfg.Config
		return nil
	})
	root.SetArgs(config.ExpandLists(strings.Fields(commandLine)))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	err := root.ExecuteContext(t.Context())
	if want := err == nil; (calls == 1) != want {
		t.Errorf("carryover %s: serve ran %d times with error %v", commandLine, calls, err)
	}
	return got, err
}

func urls(list []config.InstanceConfig) string { return config.FormatValue(&list) }

// The first two lines are those of the example's documentation; the others use its parser in the ways it allows.
func TestServe_ExampleCommandLines(t *testing.T) {
	for _, tc := range []struct{ args, prefill, decode string }{
		{"", "http://localhost:8100", "http://localhost:8200"},
		{
			"--host 0.0.0.0 --port 8000 --prefiller-host 10.0.0.1 --prefiller-port 8100 --decoder-host 10.0.0.2 --decoder-port 8200",
			"http://10.0.0.1:8100", "http://10.0.0.2:8200",
		},
		{
			"--prefiller-hosts a b c --prefiller-ports 8100 8101 8102 --decoder-hosts d e --decoder-ports 8200 8201 --port 8000",
			"http://a:8100,http://b:8101,http://c:8102", "http://d:8200,http://e:8201",
		},
		{"--prefiller-host a --decoder-host=b", "http://a:8100", "http://b:8200"},
		{"--prefiller-port 9100 --decoder-port=9200", "http://localhost:9100", "http://localhost:9200"},
		{"--prefiller-host a b --prefiller-host c", "http://c:8100", "http://localhost:8200"},
		{"--prefiller-host a b --prefiller-hosts c", "http://c:8100", "http://localhost:8200"},
		{"--prefiller-host ::1 [::2] --prefiller-port 1 2", "http://[::1]:1,http://[::2]:2", "http://localhost:8200"},
		{"--prefill http://a:1 --prefill https://b --decoder-host c", "http://a:1,https://b", "http://c:8200"},
	} {
		for _, command := range []string{"", "serve "} {
			t.Run(command+tc.args, func(t *testing.T) {
				cfg, err := served(t, command+tc.args)
				must(t, err)
				if got := urls(cfg.Prefill); got != tc.prefill {
					t.Errorf("prefill %s, want %s", got, tc.prefill)
				}
				if got := urls(cfg.Decode); got != tc.decode {
					t.Errorf("decode %s, want %s", got, tc.decode)
				}
			})
		}
	}
}

func TestServe_CommandAfterFlags(t *testing.T) {
	cfg, err := served(t, "--port 9 --prefiller-host a b --prefiller-port 1 2 serve --log-level debug")
	must(t, err)
	if got, want := urls(cfg.Prefill), "http://a:1,http://b:2"; got != want || cfg.Listen.Port != 9 || cfg.Log.Level != "debug" {
		t.Errorf("prefill %s, port %d, level %s; want %s, 9, debug", got, cfg.Listen.Port, cfg.Log.Level, want)
	}
}

func TestServe_RefusedCommandLines(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--prefiller-host a b", `prefill: "a b" (--prefiller-host): want as many hosts as ports, got 2 hosts and 1 ports`},
		{"--decoder-port 1 2", `decode: "localhost" (--decoder-host): want as many hosts as ports, got 1 hosts and 2 ports`},
		{"--prefiller-host --port 8000", `invalid argument "" for "--prefiller-host" flag: want at least one value`},
		{"--decoder-ports --decoder-ports 8200", `invalid argument "" for "--decoder-ports" flag: want at least one value`},
		{"--prefiller-port 0", `prefill: "0" (--prefiller-port): want a port from 1 to 65535`},
		{"--prefiller-port -1", `prefill: "-1" (--prefiller-port): want a port from 1 to 65535`},
		{"--decoder-port http", `decode: "http" (--decoder-port): want a port from 1 to 65535`},
		{"--decoder-host http://d", `decode: "http://d" (--decoder-host): want a host name or an IP address`},
		{
			"--prefill http://a:1 --prefiller-host b --prefiller-port 70000",
			`prefill: "http://a:1" (--prefill): want either URLs or --prefiller-host and --prefiller-port, not both` + "\n" +
				`prefill: "70000" (--prefiller-port): want a port from 1 to 65535`,
		},
		{"--prefiller-host a --prefiller-host=b c", `unknown command or argument "c"; see carryover --help`},
		{"--prefiller-host a a --prefiller-port 1 1", `prefill[1].url: "http://a:1" (--prefiller-host): want each prefill instance once, this is prefill[0] again`},
		{"--prefill http://u:hunter2@a --port x", `listen.port: "x" (--port): want a whole number from 0 to 65535` + "\n" +
			`prefill[0].url: "http://<redacted>@a" (--prefill): want http://host[:port] or https://host[:port], without path, query and user`},
		{"--port 65536", `listen.port: "65536" (--port): want a whole number from 0 to 65535`},
		{"--ttl 480s", `store.ttl: "480s" (--ttl): want less than the 480s for which decode[0] keeps its blocks (store.decoder_kv_ttl, kv_ttl)`},
		{"--decoder-kv-ttl 100s", `store.ttl: "450s" (default): want less than the 100s for which decode[0] keeps its blocks (store.decoder_kv_ttl, kv_ttl)`},
		{"--secret hunter2", "unknown flag: --secret"},
		{"--no-such-flag", "unknown flag: --no-such-flag"},
		{"--port", "flag needs an argument: --port"},
		{"frobnicate", `unknown command or argument "frobnicate"; see carryover --help`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			_, err := served(t, tc.args)
			if err == nil || err.Error() != tc.want {
				t.Errorf("carryover %s\n got %v\nwant %s", tc.args, err, tc.want)
			}
			if _, ok := errors.AsType[*command.UsageError](err); !ok {
				t.Errorf("carryover %s: error %T is not a usageError", tc.args, err)
			}
		})
	}
}

func TestServe_RuntimeErrorIsNotAUsageError(t *testing.T) {
	root := NewRootCommand(nil, func(context.Context, app.Configured, io.Writer) error { return errors.New("listen: address in use") })
	root.SetArgs([]string{})
	err := root.ExecuteContext(t.Context())
	if _, usage := errors.AsType[*command.UsageError](err); err == nil || usage {
		t.Errorf("error %v, usage %t; want the error of serve as it is", err, usage)
	}
}

// runCommand runs the whole program with a command that ends by itself.
func runCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return ranWith(t, nil, args...)
}

func TestRun_ExitCodesAndStreams(t *testing.T) {
	for _, tc := range []struct {
		args           string
		code           int
		stdout, stderr string // how they begin
	}{
		{"check-config", command.ExitOK, "ok: 1 prefill, 1 decode, connector nixl, store memory, ttl 450s\n", ""},
		{"check-config --print", command.ExitOK, "listen:\n  # address to listen on (--host, CARRYOVER_HOST)\n  host: 0.0.0.0\n", ""},
		{"check-config --prefiller-host a b --prefiller-port 1 2", command.ExitOK, "ok: 2 prefill, 1 decode", ""},
		{"check-config --port x --ttl y", command.ExitUsage, "", "carryover: listen.port: \"x\" (--port): want a whole number from 0 to 65535\ncarryover: store.ttl: \"y\" (--ttl): want a Go duration"},
		{"serve --port x", command.ExitUsage, "", "carryover: listen.port:"},
		{"--port x", command.ExitUsage, "", "carryover: listen.port:"},
		{"--config no-such-file.yaml", command.ExitUsage, "", `carryover: config: "no-such-file.yaml" (--config): want a readable file: open no-such-file.yaml`},
		{"nonsense", command.ExitUsage, "", "carryover: unknown command"},
		{"version", command.ExitOK, "carryover dev\ngo1.", ""},
		{"version now", command.ExitUsage, "", "carryover: unknown command or argument \"now\""},
		{"probe", command.ExitUsage, "", "carryover: probe takes one URL, got 0 arguments"},
		{"probe localhost:8000", command.ExitUsage, "", "carryover: probe: \"localhost:8000\": want an http or https URL"},
		{"--help", command.ExitOK, "carryover is a multi-turn proxy", ""},
		{"serve --help", command.ExitOK, "Run the proxy", ""},
		{"probe --help", command.ExitOK, "Exit 0 if a GET", ""},
	} {
		t.Run(tc.args, func(t *testing.T) {
			code, stdout, stderr := runCommand(t, strings.Fields(tc.args)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !strings.HasPrefix(stdout, tc.stdout) || (stdout == "") != (tc.stdout == "") {
				t.Errorf("stdout %q, want it to begin %q", stdout, tc.stdout)
			}
			if !strings.HasPrefix(stderr, tc.stderr) || (stderr == "") != (tc.stderr == "") {
				t.Errorf("stderr %q, want it to begin %q", stderr, tc.stderr)
			}
		})
	}
}

func TestHelp_ShowsEverySettingWithItsDefault(t *testing.T) {
	_, help, _ := runCommand(t, "check-config", "--help-all")
	cfg := config.Default()
	for _, s := range config.Settings(&cfg) {
		if s.Flag == "" {
			continue
		}
		line := ""
		for l := range strings.Lines(help) {
			if fields := strings.Fields(l); len(fields) > 0 && fields[0] == "--"+s.Flag {
				line = l
			}
		}
		value := reflect.ValueOf(s.To).Elem()
		if !strings.Contains(line, s.Help) || (!value.IsZero() && !strings.Contains(line, "(default "+config.FormatValue(s.To)+")")) {
			t.Errorf("--%s: help line %q lacks %q or the default %q", s.Flag, line, s.Help, config.FormatValue(s.To))
		}
	}
	for _, flag := range []string{"--config", "--print", "--prefiller-host", "--decoder-port", "--help"} {
		if !strings.Contains(help, "\n  "+flag+" ") {
			t.Errorf("help does not show %s", flag)
		}
	}
}

// A second program on a machine finds the default taken. Its start ends, and says which flag helps.
func TestAdminListen_TakenAddressNamesTheFlag(t *testing.T) {
	free := func() string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { listener.Close() })
		return listener.Addr().String()
	}
	standard := config.Default().Admin.Listen
	if taken, err := net.Listen("tcp", standard); err == nil { // else it was taken before
		defer taken.Close()
	}
	other := free()
	_, client, _ := net.SplitHostPort(free())
	const local = "--host 127.0.0.1 --port "
	for _, tc := range []struct{ name, args, want string }{
		{"the default", local + "0", "admin.listen: " + standard + " is taken by another program: choose an address with --admin-listen, or off for no listener for operators"},
		{"one that was asked for", local + "0 --admin-listen " + other, "admin.listen: " + other + " is taken by another program: choose an address with --admin-listen"},
		{"that of clients", local + client + " --admin-listen off", "listen: 127.0.0.1:" + client + " is taken by another program: choose a port with --port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := runCommand(t, strings.Fields(tc.args)...)
			if code != command.ExitRuntime || !strings.Contains(stderr, "carryover: "+tc.want) || !strings.Contains(stderr, " is free (") {
				t.Errorf("exit code %d, want %d, and\n%s\nin\n%s", code, command.ExitRuntime, tc.want, stderr)
			}
		})
	}
}

// Faults of the configuration are named beside them.
func TestTelemetry_BadVariablesAreRefusedAtTheStart(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"OTEL_TRACES_EXPORTER", "zipkin", `OTEL_TRACES_EXPORTER: "zipkin" (environment): want one of otlp, none`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" (environment): want one of http/protobuf, grpc`},
		{"OTEL_RESOURCE_ATTRIBUTES", "a", `OTEL_RESOURCE_ATTRIBUTES: `},
	} {
		for _, words := range []string{"serve", "check-config", "--max-streams -1"} {
			t.Run(words+" with "+tc.name, func(t *testing.T) {
				t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
				t.Setenv(tc.name, tc.value)
				var stderr bytes.Buffer
				code := RunWithServe(t.Context(), append(strings.Fields(words), "--prefill", "http://p", "--decode", "http://d"), nil, io.Discard, &stderr, nil)
				if code != command.ExitUsage || !strings.Contains(stderr.String(), tc.want) || strings.Contains(stderr.String(), "limits.max_streams") != strings.Contains(words, "-1") {
					t.Errorf("exit code %d, %q; want %d, %q", code, stderr.String(), command.ExitUsage, tc.want)
				}
			})
		}
	}
}
