package doctor

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/demo"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// planted is a fault of testdata/faults.yaml, which says what the keys mean.
type planted struct {
	Name, On, Flags, Code, Also, Fix string
	Prefill, Decode, Fault           map[string]any
	Gone, Unrendered, Pinned         bool
}

// fill sets the members of a value that are named.
func fill(t *testing.T, to any, members map[string]any) {
	t.Helper()
	raw, err := json.Marshal(members)
	must(t, err)
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	must(t, decoder.Decode(to))
}

func TestDoctor_FindsPlantedFaults(t *testing.T) {
	text, err := os.ReadFile("testdata/faults.yaml")
	must(t, err)
	var all []planted
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	must(t, decoder.Decode(&all))
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, func(prefill, decode *vllmsim.Config) {
				fill(t, prefill, p.Prefill)
				fill(t, decode, p.Decode)
			}, strings.Fields(p.Flags)...)
			if p.Gone {
				must(t, w.decode.Close())
			}
			if p.On != "" {
				var fault vllmsim.Fault
				fill(t, &fault, p.Fault)
				must(t, map[string]*vllmsim.Instance{config.RolePrefill: w.prefill, config.RoleDecode: w.decode}[p.On].SetFault(fault))
			}
			if p.Unrendered { // by a server that has no such endpoint
				srv := httptest.NewServer(http.NotFoundHandler())
				t.Cleanup(srv.Close)
				w.args = append(w.args, "--render", srv.URL)
			}
			told := w.examine(t)
			if p.Code != "" {
				if f := told.find(t, p.Code); f.Why == "" || !strings.Contains(f.Fix, p.Fix) {
					t.Errorf("%+v, want a fix with %q", f, p.Fix)
				}
			}
			if p.Also != "" && told.find(t, p.Also).Why == "" {
				t.Errorf("%s without a reason", p.Also)
			}
			for _, f := range told.wrong() {
				if f.Code != p.Code && f.Code != p.Also {
					t.Errorf("%s: %s: %s, which is not the fault", f.Where, f.Code, f.What)
				}
			}
			if !p.Pinned {
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
		{"gone", nil, "", codeRedisDown, "--store-timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tc.server...)
			server.CLI("ACL", "SETUSER", "carryover", "on", ">pass", "~carryover:*", "-@all", "+hmget", "+time", "+info", "+scan")
			if tc.want == codeRedisDown {
				server.Kill()
			}
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
