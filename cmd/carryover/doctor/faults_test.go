package doctor

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/demo"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// planted is one fault of a fleet, and what the doctor has to say of it.
type planted struct {
	name   string
	change func(prefill, decode *vllmsim.Config)
	fault  func(t *testing.T, w *ward)
	flags  string
	code   string // "" for nothing
	also   string // another that follows from it
	fix    string // a part of that of the first
	pinned bool   // what decode keeps can't be released with this fault
}

func plantedFaults() []planted {
	fault := func(role string, f vllmsim.Fault) func(*testing.T, *ward) {
		return func(t *testing.T, w *ward) {
			i := w.prefill
			if role == config.RoleDecode {
				i = w.decode
			}
			must(t, i.SetFault(f))
		}
	}
	return []planted{
		{name: "an instance that is not there", fault: func(t *testing.T, w *ward) {
			must(t, w.decode.Close())
		}, code: codeUnreachable, fix: "/health"},
		{name: "an engine that is dead", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/health", Status: 503}),
			code: codeUnhealthy, fix: "start it again"},
		{name: "a key", change: func(p, d *vllmsim.Config) { p.APIKey, d.APIKey = "secret", "secret" }, code: codeKeyRefused, fix: "OPENAI_API_KEY="},
		{name: "an old vLLM", change: func(p, d *vllmsim.Config) {
			for _, c := range []*vllmsim.Config{p, d} {
				c.Version, c.PromptTokenIDs = "0.26.1", false
			}
		}, code: codeVersion, also: codeIDsIgnored, fix: "vllm>=0.28"},
		{name: "several API servers", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultHiddenStart}), code: codeStartUnknown, fix: "--api-server-count 1"},
		{name: "ids that decode ignores", change: func(_, d *vllmsim.Config) { d.PromptTokenIDs = false }, code: codeIDsIgnored, fix: "vllm>=0.28"},
		{name: "a probe that fails", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/v1/chat", Status: 502, Count: 1}),
			code: codeIDsUnproven, fix: "prompt_token_ids"},
		{name: "models that differ", change: func(_, d *vllmsim.Config) { d.Model = "another" }, code: codeNoCommonModel, fix: "--served-model-name"},
		{name: "model paths that differ", change: func(_, d *vllmsim.Config) { d.ModelPath = "/mnt/model" },
			code: codeModelPaths, also: codeHandoverFails, fix: "vllm serve model on"},
		{name: "versions that differ", change: func(_, d *vllmsim.Config) { d.Version = "0.31.0" }, code: codeVersions, also: codeHandoverFails, fix: "vllm==0.33.0"},
		{name: "block sizes that differ", change: func(_, d *vllmsim.Config) { d.BlockSize = 32 }, code: codeBlockSizes, also: codeHandoverFails, fix: "--block-size 32"},
		{name: "context lengths that differ", change: func(p, _ *vllmsim.Config) { p.MaxModelLen = 4096 }, code: codeLengths, fix: "--max-model-len "},
		{name: "a prefill without a KV connector", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultNullParams}),
			code: codeNoHandover, fix: "bidirectional_kv_xfer"},
		{name: "a decode that keeps nothing", change: func(_, d *vllmsim.Config) { d.Bidirectional = false }, code: codeNoParams, fix: "bidirectional_kv_xfer"},
		{name: "streams without params", change: func(p, d *vllmsim.Config) {
			p.Version, d.Version, d.Params = vllmsim.VLLM032, vllmsim.VLLM032, vllmsim.ParamsNever
		},
			code: codeStreamParams, fix: "install version 1.0 or newer of the plug-in", pinned: true},
		{name: "streams without params of a vLLM that has them", change: func(_, d *vllmsim.Config) { d.Params = vllmsim.ParamsNever },
			code: codeStreamParams, fix: "Rust front end, which leaves them out of streams", pinned: true},
		{name: "releases of two connectors", change: func(_, d *vllmsim.Config) { d.Version = vllmsim.VLLM032 }, code: codeVersions, also: codeHandoverFails, fix: "vllm==0.33.0"},
		{name: "a prefill that is not bidirectional", change: func(p, _ *vllmsim.Config) { p.Bidirectional = false },
			code: codeUnanswered, fix: "kv_load_failure_policy is recompute", pinned: true},
		{name: "tickets that fail", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Tickets: true}),
			code: codeTicketFails, fix: "VLLM_NIXL_SIDE_CHANNEL_HOST", pinned: true},
		{name: "a threshold above all prompts", change: func(p, _ *vllmsim.Config) { p.RecomputeThreshold = 1 << 20 },
			code: codeNothingLoaded, fix: "kv_recompute_threshold"},
		{name: "no /tokenize", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/tokenize"}), code: codeTokenize, fix: "/tokenize"},
		{name: "a prefill that computes other ids", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultOtherIDs}), code: codeOtherIDs, fix: "restart", pinned: true},
		{name: "releases that fail", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/v1/completions"}),
			code: codeNotReleased, fix: "side channel", pinned: true},
		{name: "turns that fail", fault: fault(config.RoleDecode, vllmsim.Fault{Kind: vllmsim.FaultStatus, Handovers: true, Status: 400}),
			code: codeTurnFailed, fix: "--verbose"},
		{name: "a prefill that keeps no prefixes", change: func(p, _ *vllmsim.Config) { p.NoPrefixCaching = true }, code: codeHandBack, fix: "--enable-prefix-caching on "},
		{name: "nothing is handed back to a prefill that keeps no prefixes", change: func(p, _ *vllmsim.Config) { p.NoPrefixCaching = true }, flags: "--hand-back off"},
		{name: "a render endpoint that fails", change: renders, fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/v1/messages/render", Status: 500}),
			code: codeRenderFails, fix: "--verbose"},
		{name: "a render server without the endpoint", change: renders, fault: renderAt(http.NotFound), code: codeRenderFails, fix: "log"},
		{name: "a time of tickets that decode does not grant", flags: "--ttl 470s", code: codeTTLOrder, fix: "--ttl 450s"},
	}
}

func renders(p, _ *vllmsim.Config) { p.Render = true }

// renderAt has prompts rendered by a server that answers every request alike.
func renderAt(handler http.HandlerFunc) func(*testing.T, *ward) {
	return func(t *testing.T, w *ward) {
		srv := httptest.NewServer(handler)
		t.Cleanup(srv.Close)
		w.args = append(w.args, "--render", srv.URL)
	}
}

func TestDoctor_FindsPlantedFaults(t *testing.T) {
	for _, p := range plantedFaults() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, p.change, strings.Fields(p.flags)...)
			if p.fault != nil {
				p.fault(t, w)
			}
			told := w.examine(t)
			if p.code != "" {
				if f := told.find(t, p.code); f.Why == "" || !strings.Contains(f.Fix, p.fix) {
					t.Errorf("%+v, want a fix with %q", f, p.fix)
				}
			}
			if p.also != "" && told.find(t, p.also).Why == "" {
				t.Errorf("%s without a reason", p.also)
			}
			for _, f := range told.wrong() {
				if f.Code != p.code && f.Code != p.also {
					t.Errorf("%s: %s: %s, which is not the fault", f.Where, f.Code, f.What)
				}
			}
			if !p.pinned {
				nothingLeft(t, nil, []*vllmsim.Instance{w.decode})
			}
		})
	}
}

func TestDoctor_FindsKVThatIsNotAnnounced(t *testing.T) {
	for _, tc := range []struct {
		name, code, fix string
		plant           func(t *testing.T, d *demo.Deployment)
	}{
		{"lost", codeNotAnnounced, "pd_proxy_host", func(t *testing.T, d *demo.Deployment) {
			must(t, d.Prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultNoticeLost}))
		}},
		{"another Carryover", codeTurnFailed, "--verbose", func(t *testing.T, d *demo.Deployment) {
			l, err := net.Listen("tcp", d.Listen())
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("drives the whole program")
			}
			engines, err := demo.StartDeployment(demo.Options{Connector: config.ConnectorLMCache, Prefills: 1, Decodes: 1})
			must(t, err)
			defer engines.Close()
			tc.plant(t, engines)
			engines.Settings.Timeouts.Store = testrig.PatientStore
			engines.Settings.Timeouts.HandoverBudget = 3 * time.Second
			told := examineBy(t, engines.Settings, options{timeout: time.Minute})
			if f := told.find(t, tc.code); !strings.Contains(f.Fix, tc.fix) || len(told.wrong()) != 1 {
				t.Errorf("%+v", told.wrong())
			}
			for _, r := range engines.Prefill[0].Requests() {
				if r.Method == "POST" && (r.Path == "/v1/chat/completions" || r.Path == "/v1/completions") && !strings.Contains(string(r.Body), "disagg_spec") {
					t.Errorf("%s reached a sender without disagg_spec, which ends it: %s", r.Path, r.Body)
				}
			}
		})
	}
}

func TestDoctor_FindsWhatIsWrongWithRedis(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server []string // arguments
		user   string   // of the ACL, who may run no scripts, and a password
		want   string
		fix    string
	}{
		{"drops anything", []string{"--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"}, "", codeRedisEviction, "volatile-ttl"},
		{"an ACL without scripts", nil, "carryover:pass@", codeRedisForbids, "ACL SETUSER"},
		{"a wrong password", nil, "carryover:wrong@", codeRedisForbids, "ACL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tc.server...)
			server.CLI("ACL", "SETUSER", "carryover", "on", ">pass", "~carryover:*", "-@all", "+hmget", "+time", "+info", "+scan")
			w := newWard(t, nil, "--redis-url", "redis://"+tc.user+server.Addr())
			w.env, w.options.noTurns = []string{testrig.ReplicaSecret}, true
			told := w.examine(t)
			if f := told.find(t, tc.want); !strings.Contains(f.Fix, tc.fix) || f.Where != whereRedis || len(told.wrong()) != 1 ||
				strings.Contains(f.What, "pass") && strings.Contains(f.What, "wrong") {
				t.Errorf("%+v", told.wrong())
			}
		})
	}
}

func TestDoctor_FindsARedisThatIsGone(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	w := newWard(t, nil, "--redis-url", "redis://"+server.Addr())
	w.env, w.options.noTurns = []string{testrig.ReplicaSecret}, true
	told := w.examine(t)
	if f := told.find(t, codeRedisDown); !strings.Contains(f.Fix, "--store-timeout") {
		t.Errorf("%+v", f)
	}
}
