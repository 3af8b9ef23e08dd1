package doctor

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/demo"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// planted is one fault of a fleet, and what the doctor has to say of it.
type planted struct {
	name    string
	change  func(prefill, decode *vllmsim.Config)
	fault   func(t *testing.T, w *ward)
	flags   string
	want    []string // codes, the first of which names the fix
	fix     string   // a part of it
	pinned  bool     // what decode keeps can't be released with this fault
	allowed []string // codes that the fault brings besides
}

func plantedFaults() []planted {
	fault := func(role string, f vllmsim.Fault) func(*testing.T, *ward) {
		return func(t *testing.T, w *ward) {
			i := w.prefill
			if role == config.RoleDecode {
				i = w.decode
			}
			if err := i.SetFault(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return []planted{
		{name: "an instance that is not there", fault: func(t *testing.T, w *ward) {
			if err := w.decode.Close(); err != nil {
				t.Fatal(err)
			}
		}, want: []string{codeUnreachable}, fix: "/health"},
		{name: "an engine that is dead", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/health", Status: 503}),
			want: []string{codeUnhealthy}, fix: "start it again"},
		{name: "a key", change: func(p, d *vllmsim.Config) { p.APIKey, d.APIKey = "secret", "secret" }, want: []string{codeKeyRefused}, fix: "OPENAI_API_KEY="},
		{name: "an old vLLM", change: func(p, d *vllmsim.Config) {
			for _, c := range []*vllmsim.Config{p, d} {
				c.Version, c.PromptTokenIDs = "0.26.1", false
			}
		}, want: []string{codeVersion, codeIDsIgnored}, fix: "vllm>=0.28"},
		{name: "several API servers", change: func(p, _ *vllmsim.Config) { p.HideStart = true }, want: []string{codeStartUnknown}, fix: "--api-server-count 1"},
		{name: "ids that decode ignores", change: func(_, d *vllmsim.Config) { d.PromptTokenIDs = false }, want: []string{codeIDsIgnored}, fix: "--proof history"},
		{name: "a probe that fails", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/v1/chat", Status: 502, Count: 1}),
			want: []string{codeIDsUnproven}, fix: "prompt_token_ids"},
		{name: "models that differ", change: func(_, d *vllmsim.Config) { d.Model = "another" }, want: []string{codeNoCommonModel}, fix: "--served-model-name"},
		{name: "model paths that differ", change: func(_, d *vllmsim.Config) { d.ModelPath = "/mnt/model" },
			want: []string{codeModelPaths, codeHandoverFails}, fix: "vllm serve model on"},
		{name: "versions that differ", change: func(_, d *vllmsim.Config) { d.Version = "0.31.0" }, want: []string{codeVersions, codeHandoverFails}, fix: "vllm==0.33.0"},
		{name: "block sizes that differ", change: func(_, d *vllmsim.Config) { d.BlockSize = 32 }, want: []string{codeBlockSizes, codeHandoverFails}, fix: "--block-size 32"},
		{name: "a prefill without a KV connector", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultNullParams}),
			want: []string{codeNoHandover}, fix: "bidirectional_kv_xfer"},
		{name: "a decode that keeps nothing", change: func(_, d *vllmsim.Config) { d.Bidirectional = false }, want: []string{codeNoParams}, fix: "bidirectional_kv_xfer"},
		{name: "streams without params", change: func(p, d *vllmsim.Config) {
			p.Version, d.Version, d.Params = vllmsim.VLLM032, vllmsim.VLLM032, vllmsim.ParamsNever
		},
			want: []string{codeStreamParams}, fix: "install version 1.0 or newer of the plug-in", pinned: true},
		{name: "streams without params of a vLLM that has them", change: func(_, d *vllmsim.Config) { d.Params = vllmsim.ParamsNever },
			want: []string{codeStreamParams}, fix: "Rust front end, which leaves them out of streams, or set --decode-stream buffered", pinned: true},
		{name: "releases of two connectors", change: func(_, d *vllmsim.Config) { d.Version = vllmsim.VLLM032 }, want: []string{codeVersions, codeHandoverFails}, fix: "vllm==0.33.0"},
		{name: "a prefill that is not bidirectional", change: func(p, _ *vllmsim.Config) { p.Bidirectional = false }, flags: "--reuse-trial-timeout 1s",
			want: []string{codeUnanswered, codeHandBack}, fix: "kv_load_failure_policy is recompute", pinned: true},
		{name: "tickets that fail", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Tickets: true}),
			want: []string{codeTicketFails, codeHandBack}, fix: "VLLM_NIXL_SIDE_CHANNEL_HOST", pinned: true},
		{name: "a threshold above all prompts", change: func(p, _ *vllmsim.Config) { p.RecomputeThreshold = 1 << 20 },
			want: []string{codeNothingLoaded}, fix: "kv_recompute_threshold", allowed: []string{codeDecodeHost}},
		{name: "no /tokenize", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/tokenize"}), want: []string{codeTokenize}, fix: "/tokenize"},
		{name: "a template that repeats something else", change: func(p, d *vllmsim.Config) {
			p.Template, d.Template = vllmsim.TemplateThinkingPrompt, vllmsim.TemplateThinkingPrompt
		}, flags: "--proof history", want: []string{codeTemplate}, fix: "--chat-template", allowed: []string{codeHistory, codeHandBack}},
		{name: "a prefill that computes other ids", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultOtherIDs}), want: []string{codeOtherIDs}, fix: "restart", pinned: true},
		{name: "releases that fail", fault: fault(config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/v1/completions"}),
			want: []string{codeNotReleased}, fix: "side channel", pinned: true},
		{name: "turns that fail", fault: fault(config.RoleDecode, vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/v1/chat", Status: 400}), flags: "--proof history",
			want: []string{codeTurnFailed}, fix: "--verbose", allowed: []string{codeHistory, codeHandBack}},
		{name: "hand-back that is off", flags: "--hand-back off", want: []string{codeHandBack}, fix: "--hand-back idle"},
		{name: "hand-back without ids", flags: "--proof history", want: []string{codeHandBack}, fix: "--proof auto", allowed: []string{codeHistory}},
		{name: "a time of tickets that decode does not grant", flags: "--ttl 470s", want: []string{codeTTLOrder}, fix: "--ttl 450s"},
		{name: "more turns than files", flags: "--max-streams 100000000", want: []string{codeOpenFiles}, fix: "ulimit"},
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
			if f := told.find(t, p.want[0]); !strings.Contains(f.Fix, p.fix) || f.Why == "" {
				t.Errorf("%+v, want a fix with %q", f, p.fix)
			}
			expected := append(p.want, p.allowed...)
			for _, code := range p.want {
				told.find(t, code)
			}
			for _, f := range told.wrong() {
				if !slices.Contains(expected, f.Code) {
					t.Errorf("%s: %s: %s, which is not the fault", f.Where, f.Code, f.What)
				}
			}
			if !p.pinned {
				nothingLeft(t, nil, []*vllmsim.Instance{w.decode})
			}
		})
	}
}

// startAway starts an instance that is reached at another address of this machine than 127.0.0.1, where it says that its KV is: what its
// neighbour would find there is another machine's in life.
func startAway(t *testing.T, role string, change func(*vllmsim.Config)) *vllmsim.Instance {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Role, cfg.Host = role, "127.0.0.1"
	if change != nil {
		change(&cfg)
	}
	i, err := vllmsim.StartAt(cfg, "127.0.0.2:0", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

func TestDoctor_FindsSideChannelsThatListenForThemselvesOnly(t *testing.T) {
	fast := func(c *vllmsim.Config) { c.TimeScale = 20 } // a side channel where nobody listens is given up after five seconds
	for _, tc := range []struct {
		role, policy string
		want         []string
	}{
		{config.RolePrefill, vllmsim.PolicyFail, []string{codePrefillHost, codeHandoverFails}},
		{config.RoleDecode, vllmsim.PolicyFail, []string{codeDecodeHost, codeTicketFails}},
		{config.RoleDecode, vllmsim.PolicyRecompute, []string{codeDecodeHost, codeUnanswered}},
	} {
		t.Run(tc.role+" "+tc.policy, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, func(p, d *vllmsim.Config) {
				fast(p)
				fast(d)
				p.LoadFailurePolicy = tc.policy
			}, "--reuse-trial-timeout", "2s")
			away, flag := startAway(t, tc.role, fast), "--"+tc.role
			for i, arg := range w.args {
				if arg == flag {
					w.args[i+1] = away.URL()
				}
			}
			told := w.examine(t)
			for _, code := range tc.want {
				told.find(t, code)
			}
			if f := told.find(t, tc.want[0]); !strings.Contains(f.Fix, "VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.2") {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestDoctor_ASideChannelThatWorksIsRight(t *testing.T) {
	w := newWard(t, nil)
	for role, flag := range map[string]string{config.RolePrefill: "--prefill", config.RoleDecode: "--decode"} {
		away := startAway(t, role, func(c *vllmsim.Config) { c.Host = "localhost" }) // which kv.host auto replaces
		for i, arg := range w.args {
			if arg == flag {
				w.args[i+1] = away.URL()
			}
		}
	}
	told := w.examine(t)
	if len(told.wrong()) > 0 {
		t.Errorf("%+v", told.wrong())
	}
	for _, f := range told.Findings {
		if (f.Code == codePrefillHost || f.Code == codeDecodeHost) && !strings.Contains(f.What, "kv.host auto puts 127.0.0.2 there") {
			t.Errorf("%+v", f)
		}
	}
}

func TestDoctor_FindsOneServerUnderTwoNames(t *testing.T) {
	w := newWard(t, nil)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(w.prefill.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	w.args = append(w.args, "--prefill", "http://localhost:"+port)
	told := w.examine(t)
	if f := told.find(t, codeTwoNames); !strings.Contains(f.Fix, "list http://") || len(told.wrong()) != 1 {
		t.Errorf("%+v", told.wrong())
	}
}

// Measured: two engines of one shell command told the same start.
func TestSameServer_WantsMoreThanAStart(t *testing.T) {
	at := func(url string) *examined {
		instance, err := upstream.NewInstance(upstream.RoleDecode, "", url)
		if err != nil {
			t.Fatal(err)
		}
		return &examined{Instance: instance, start: "1.79538011319e+09"}
	}
	one := at("http://127.0.0.1:8277")
	for url, want := range map[string]bool{"http://localhost:8277": true, "http://127.0.0.1:8278": false, "http://127.0.0.2:8277": false} {
		if got := sameServer(t.Context(), one, at(url)); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
}

func TestDoctor_FindsKVThatIsNotAnnounced(t *testing.T) {
	for _, tc := range []struct {
		name, code, fix string
		plant           func(t *testing.T, d *demo.Deployment)
	}{
		{"lost", codeNotAnnounced, "pd_proxy_host", func(t *testing.T, d *demo.Deployment) {
			if err := d.Prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultNoticeLost}); err != nil {
				t.Fatal(err)
			}
		}},
		{"another Carryover", codeAddressTaken, "stop it", func(t *testing.T, d *demo.Deployment) {
			l, err := net.Listen("tcp", d.Listen())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("drives the whole program")
			}
			engines, err := demo.StartDeployment(demo.Options{Connector: config.ConnectorLMCache, Prefills: 1, Decodes: 1})
			if err != nil {
				t.Fatal(err)
			}
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
