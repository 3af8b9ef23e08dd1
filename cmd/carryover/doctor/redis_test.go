package doctor

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

func TestDoctor_FindsWhatIsWrongWithRedis(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server []string // arguments
		user   string   // of the ACL, who may run no scripts, and a password
		want   []string
		fix    string
	}{
		{"as it comes", nil, "", []string{codeRedisMemory}, "maxmemory 256mb"},
		{"drops anything", []string{"--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"}, "", []string{codeRedisEviction}, "volatile-ttl"},
		{"drops nothing", []string{"--maxmemory", "64mb", "--maxmemory-policy", "noeviction"}, "", []string{codeRedisEviction}, "volatile-ttl"},
		{"writes a file", []string{"--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl", "--appendonly", "yes"}, "", []string{codeRedisDisk}, "appendonly no"},
		{"an ACL without scripts", nil, "carryover:pass@", []string{codeRedisForbids}, "ACL SETUSER"},
		{"a wrong password", nil, "carryover:wrong@", []string{codeRedisForbids}, "ACL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tc.server...)
			server.CLI("ACL", "SETUSER", "carryover", "on", ">pass", "~carryover:*", "-@all", "+hmget", "+time", "+info", "+scan")
			w := newWard(t, nil, "--redis-url", "redis://"+tc.user+server.Addr())
			w.env, w.options.noTurns = []string{testrig.ReplicaSecret}, true
			told := w.examine(t)
			if f := told.find(t, tc.want[0]); !strings.Contains(f.Fix, tc.fix) || f.Where != whereRedis || strings.Contains(f.What, "pass") && strings.Contains(f.What, "wrong") {
				t.Errorf("%+v", f)
			}
			for _, f := range told.wrong() {
				if !slices.Contains(tc.want, f.Code) {
					t.Errorf("%+v, which is not the fault", f)
				}
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

func TestDoctor_JudgesTheClockOfRedis(t *testing.T) {
	for apart, bad := range map[time.Duration]bool{0: false, time.Second: false, -3 * time.Second: true, 3 * time.Second: true} {
		d := &doctor{cfg: config.Default(), report: newDoctorReport()}
		d.redis(redisstore.Sight{MaxMemory: 1, Eviction: "volatile-ttl", Apart: apart})
		if d.report.has(whereRedis, codeRedisClock) != bad || d.report.count(severityWarn) != map[bool]int{true: 1}[bad] {
			t.Errorf("%s apart: %+v", apart, d.report.findings)
		}
	}
}

func TestDoctor_KnowsQuarantinesOfReplicas(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl")
	w := newWard(t, nil, "--redis-url", "redis://"+server.Addr())
	w.env = []string{testrig.ReplicaSecret}
	cfg, err := configtest.Load(t, strings.Join(w.args, " "), w.env...)
	if err != nil {
		t.Fatal(err)
	}
	first := w.examine(t)
	if len(first.wrong()) > 0 {
		t.Fatalf("%+v", first.wrong())
	}
	another, _, err := app.NewParts(app.Configured{Config: cfg}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	if err := another.Tickets.Shared.QuarantineIncarnation(t.Context(), w.prefill.URL()+" "+startOf(t, w)); err != nil {
		t.Fatal(err)
	}
	told := w.examine(t)
	if f := told.find(t, codeQuarantined); !strings.Contains(f.Fix, "restart") || told.Requests != 0 {
		t.Errorf("%+v, %d requests", f, told.Requests)
	}
}

// startOf is the start that the prefill instance of a ward tells.
func startOf(t *testing.T, w *ward) string {
	t.Helper()
	for line := range strings.Lines(fetchText(t, w.prefill.URL()+"/metrics")) {
		if value, found := strings.CutPrefix(line, "process_start_time_seconds "); found {
			return strings.TrimSpace(value)
		}
	}
	t.Fatal("no start")
	return ""
}
