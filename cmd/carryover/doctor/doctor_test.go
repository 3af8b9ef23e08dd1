package doctor

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

func TestDoctor_EachCodeHasAFix(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range diagnoses {
		if seen[d.code] || d.code == "" || strings.ToLower(d.code) != d.code || strings.ContainsAny(d.code, " -") {
			t.Errorf("%q: want a code of its own, in lower case and with underscores", d.code)
		}
		seen[d.code] = true
		if d.fix == "" || d.severity != severityOK && d.why == "" {
			t.Errorf("%s: no fix, or no reason", d.code)
		}
	}
}

// TestDoctor_FixesAreComplete has no name in braces left in what findings of instances and pairs say.
func TestDoctor_FixesAreComplete(t *testing.T) {
	p, q := &examined{Instance: upstream.Instance{Name: "p", BaseURL: "http://p:1", Role: upstream.RolePrefill}}, &examined{Instance: upstream.Instance{Name: "q", BaseURL: "http://q:1", Role: upstream.RoleDecode}}
	d := &doctor{cfg: config.Default(), report: newDoctorReport()}
	v := d.verdictOf(couple{p, q}, "m", &tried{})
	for _, row := range diagnoses[rowOf(codeTurnFailed):rowOf(codeRedisDown)] {
		v.found(row.code, "x", "{why}", "x", "{fix}", "x")
	}
	for _, f := range d.report.findings {
		if name := regexp.MustCompile("{[a-z]+}").FindString(f.Fix + f.Why); name != "" {
			t.Errorf("%s: %s stands for nothing", f.Code, name)
		}
	}
}

func TestDoctor_Prints(t *testing.T) {
	r := newDoctorReport()
	r.place("prefill p")
	r.place("p -> q")
	r.pairs, r.probed, r.requests = 1, 1, 4
	r.found("p -> q", codeStreamParams, "whole answers have kv_transfer_params, streams have none", "{decode}", "q", "{why}", "reason", "{fix}", "remedy")
	r.holds("prefill p", codeUnreachable, "")
	r.check(whereSettings, codeTTLOrder, "store.ttl is 470s", "{ttl}", "450s")
	r.note("A note.")
	r.sort()
	for name, prints := range map[string]func(io.Writer, bool) error{"doctor.json": r.json, "doctor.txt": r.text} {
		var out bytes.Buffer
		must(t, prints(&out, false))
		want, err := os.ReadFile(filepath.Join("testdata", name))
		must(t, err)
		if out.String() != string(want) {
			t.Errorf("not that of testdata/%s:\n%s", name, out.String())
		}
	}
}

// A clean result says what it says nothing of; one that is not has enough to say.
func TestDoctor_ListsWhatItCannotCheck(t *testing.T) {
	for _, clean := range []bool{true, false} {
		r := newDoctorReport()
		r.check("decode q", codeUnreachable, "")
		if !clean {
			r.check("decode q", codeStartUnknown, "it does not tell")
		}
		var out bytes.Buffer
		must(t, r.text(&out, false))
		_, below, listed := strings.Cut(out.String(), "all 1 checks hold\nnot checked")
		if listed != clean {
			t.Errorf("clean %v: printed\n%s", clean, out.String())
		}
		for _, words := range []string{"decoder_kv_blocks_ttl", "kv_load_failure_policy", "kv_recompute_threshold", "plug-in"} {
			if strings.Contains(below, words) != clean {
				t.Errorf("clean %v: %s is listed below: %v", clean, words, !clean)
			}
		}
	}
}

func TestDoctor_ExitCodes(t *testing.T) {
	closed := newWard(t, nil)
	must(t, closed.decode.Close())
	warned := strings.Join(newWard(t, nil, "--ttl", "470s").args, " ")
	for _, tc := range []struct {
		args string
		code int
		want string // on standard error
	}{
		{"--no-turns " + strings.Join(closed.args, " "), command.ExitRuntime, "carryover: doctor: 1 error\n"},
		{"--no-turns " + warned, command.ExitOK, ""},
		{"--no-turns --strict " + warned, command.ExitRuntime, "carryover: doctor: 1 warning\n"},
		{"--timeout 0s", command.ExitUsage, "carryover: doctor --timeout: want a positive duration\n"},
		{"--through example", command.ExitUsage, "carryover: doctor --through \"example\": want"},
		{"--ttl 500s", command.ExitUsage, "carryover: store.ttl:"},
		{"--admin-listen 0.0.0.0:9480", command.ExitUsage, "carryover: admin.listen:"},
		{"--redis-url redis://127.0.0.1:6379", command.ExitUsage, "carryover: conversation.secret:"},
		{"now", command.ExitUsage, "carryover: unknown command or argument"},
	} {
		code, stdout, stderr := runCommand(t, append([]string{"doctor"}, strings.Fields(tc.args)...)...)
		if code != tc.code || !strings.HasPrefix(stderr, tc.want) || (stdout == "") != (code == command.ExitUsage) {
			t.Errorf("doctor %s: exit code %d, %q, want %d and %q", tc.args, code, stderr, tc.code, tc.want)
		}
	}
}

func TestCouples_HaveEachInstanceFirst(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {1, 5}, {5, 1}, {3, 4}, {4, 3}, {8, 8}, {20, 30}, {64, 64}, {100, 2}} {
		p, q := make([]*examined, size[0]), make([]*examined, size[1])
		for i := range p {
			p[i] = &examined{}
		}
		for i := range q {
			q[i] = &examined{}
		}
		all := couples(p, q, mostPairs)
		seen, pairs := map[*examined]bool{}, map[couple]bool{}
		for _, c := range all {
			seen[c.prefill], seen[c.decode], pairs[c] = true, true, true
		}
		if want := min(mostPairs, size[0]*size[1]); len(all) != want || len(pairs) != want {
			t.Errorf("%v: %d couples, %d different, want %d", size, len(all), len(pairs), want)
		}
		if max(size[0], size[1]) <= mostPairs && len(seen) != size[0]+size[1] {
			t.Errorf("%v: %d instances are tried", size, len(seen))
		}
	}
}

func TestClockApart_SeesClocksThatAreAhead(t *testing.T) {
	now := time.Unix(1_795_000_000, 0)
	for start, want := range map[string]bool{
		"1794000000.25": false, "1795000000": false, "1795000001.5": false, "1795000010.5": true, "1.7949999e+09": false, "1.7950001e+09": true, "": false, "soon": false,
	} {
		if got := clockApart(start, now); (got != "") != want {
			t.Errorf("start %q at %d: %q", start, now.Unix(), got)
		}
	}
}

// TestJudge_WordsOfRecords gives what simulated engines can't be made to do.
func TestJudge_WordsOfRecords(t *testing.T) {
	turns := func(first, second func(*record.Turn)) *tried {
		seen := &tried{}
		for _, stream := range []bool{true, false} {
			for _, again := range []bool{false, true} {
				r := record.Turn{Status: 200, Stored: "yes", Path: record.Path{Way: record.WayPrefillDecode}}
				if again {
					r.Reuse = record.Reuse{Hit: true, Offered: 300, Cached: 300, Read: 120}
					second(&r)
				} else {
					first(&r)
				}
				seen.turns = append(seen.turns, probeTurn{stream: stream, second: again, record: r})
			}
		}
		return seen
	}
	same := func(*record.Turn) {}
	for _, tc := range []struct {
		name string
		seen *tried
		want string // "" for nothing
	}{
		{"as it should be", turns(same, same), ""},
		{"prefill tells nothing of its caches", turns(same, func(r *record.Turn) { r.Reuse.Cached = -1 }), ""},
		{"a few tokens are computed", turns(same, func(r *record.Turn) { r.Reuse.Cached = 270 }), ""},
		{"no ids", turns(func(r *record.Turn) { r.Stored = "ineligible_unproven;why=ids" }, same), codeNoIDs},
		{"counts", turns(func(r *record.Turn) { r.Stored = "ineligible_token_count" }, same), codeNoTicket},
		{"too little", turns(same, func(r *record.Turn) { r.Reuse = record.Reuse{Reason: record.ReasonBelowThreshold} }), codeRewritten},
		{"gone", turns(same, func(r *record.Turn) { r.Reuse = record.Reuse{Reason: record.ReasonInstanceGone} }), codeMiss},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &doctor{cfg: config.Default(), report: newDoctorReport()}
			instance := func(role upstream.Role, name string) *examined {
				return &examined{Instance: upstream.Instance{Name: name, BaseURL: "http://" + name, Role: role}, blockSize: 16}
			}
			d.verdictOf(couple{instance(upstream.RolePrefill, "p"), instance(upstream.RoleDecode, "q")}, "m", tc.seen).judge()
			told := doctored{Findings: d.report.findings}
			if bad := told.wrong(); len(bad) > 1 || (len(bad) == 1) != (tc.want != "") || tc.want != "" && bad[0].Code != tc.want {
				t.Errorf("%+v", d.report.findings)
			}
		})
	}
}

// Engines choose what they say of themselves, and an operator's terminal shows it.
func TestDoctor_PrintsNothingThatATerminalObeys(t *testing.T) {
	const hostile = "\x1b]0;owned\a\x1b[2J\r\n  all 99 checks hold\u009b31m\u202etxt"
	r := newDoctorReport()
	r.found(whereSettings, codeModelPaths, "it says "+hostile)
	r.note("a note of " + hostile)
	var text, told bytes.Buffer
	must(t, errors.Join(r.text(&text, true), r.json(&told, true)))
	for _, printed := range []string{text.String(), told.String()} {
		for i, c := range printed {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Fatalf("%q is printed, in %q", c, printed[max(0, i-20):])
			}
		}
	}
	if strings.Contains(text.String(), "\n  all 99") || !strings.Contains(text.String(), `it says \x1b]0;owned\a\x1b[2J\r\n  all 99 checks hold`) {
		t.Errorf("%s", text.String())
	}
}

// A fix is copied into a shell. What an engine has chosen stands in it where that is harmless.
func TestDoctor_FixesRunNothingThatAnEngineHasChosen(t *testing.T) {
	w := newWard(t, func(p, _ *vllmsim.Config) { p.ModelPath = "m'; touch owned; echo '" })
	told := w.examine(t)
	f := told.find(t, codeModelPaths)
	if strings.Contains(f.Fix, "touch") || !strings.Contains(f.Fix, "vllm serve {root} on") || !strings.Contains(f.What, "touch") {
		t.Errorf("%+v", f)
	}
}

func TestPairConfig_HandsNothingBack(t *testing.T) {
	cfg := config.Default()
	cfg.HandBack.Mode = string(pins.HandBackNow)
	if got := app.NewHandBack(pairConfig(cfg)); got != (pins.HandBackConfig{HandBack: pins.HandBackOff, HandBackAuto: true}) {
		t.Errorf("%+v", got)
	}
	if cfg.HandBack.Mode != string(pins.HandBackNow) {
		t.Error("the configuration that is reported was changed")
	}
}
