package doctor

import (
	"slices"
	"strings"
	"testing"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/server/pins"
	"carryover/upstream/vllmsim"
)

// handBackFinding is what was found of hand-back at a place, the zero value for nothing.
func (d *doctored) handBackFinding(where string) finding {
	i := slices.IndexFunc(d.Findings, func(f finding) bool {
		return f.Code == codeHandBack && (f.Where == where || where == "" && f.Where != whereSettings)
	})
	if i < 0 {
		return finding{}
	}
	return d.Findings[i]
}

func TestDoctor_SaysWhetherTicketsAreHandedBack(t *testing.T) {
	for _, tc := range []struct {
		flags    string
		severity severity
		what     string
		fix      string
	}{
		{"", severityOK, "on: a ticket is handed back to prefill or released as it costs least by what is learnt of its kind, and until then when no turn has used it for 5s", ""},
		{"--hand-back now --release off", severityOK, "on: a ticket is handed back to prefill at the end of each turn", ""},
		{"--hand-back off", severityWarn, "off: --hand-back off", "--hand-back idle"},
		{"--proof history", severityWarn, "off: --proof history knows no token ids", "--proof auto"},
		{"--connector multi", severityOK, "off: with connector multi it was never measured", ""},
		{"--connector mooncake --hand-back now", severityOK, "off: connector mooncake leaves no tickets", ""},
	} {
		cfg, err := configtest.Load(t, tc.flags)
		if err != nil {
			t.Fatal(err)
		}
		d := &doctor{cfg: cfg, report: newDoctorReport()}
		d.settings(1 << 20)
		told := doctored{Findings: d.report.findings}
		f := told.handBackFinding(whereSettings)
		if f.Severity != tc.severity || !strings.HasPrefix(f.What, tc.what) || !strings.Contains(f.Fix, tc.fix) || (f.Fix == "") != (tc.fix == "") {
			t.Errorf("%s: %+v", tc.flags, f)
		}
	}
}

// What the pairs have shown is said of each, unless nothing is to be handed back anyway.
func TestDoctor_SaysWhichPairsHandBack(t *testing.T) {
	for flags, want := range map[string]string{
		"": "prefill answers tickets", "--hand-back now": "prefill answers tickets", "--hand-back off": "", "--proof history": "",
	} {
		t.Run(flags, func(t *testing.T) {
			w := newWard(t, nil, strings.Fields(flags)...)
			told := w.examine(t)
			if got := told.handBackFinding(""); !strings.HasPrefix(got.What, want) || (want == "") != (got == finding{}) {
				t.Errorf("%+v, want %q", got, want)
			}
			for _, r := range w.prefill.Requests() {
				// Legs that release are dropped at their first event as those are, and have prefill read nothing.
				if body := string(r.Body); strings.Contains(body, "ignore_eos") && !strings.Contains(body, `"remote_num_tokens":0,`) {
					t.Errorf("the doctor's own conversations were handed back: %s", r.Body)
				}
			}
		})
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

// The doctor says of a pair that hand-back is off by prefill's own doing.
func TestDoctor_SaysThatPrefillKeepsNoPrefixes(t *testing.T) {
	w := newWard(t, func(prefill, _ *vllmsim.Config) { prefill.NoPrefixCaching = true })
	told := w.examine(t)
	i := slices.IndexFunc(told.Findings, func(f finding) bool { return f.Code == codeHandBack && f.Severity == severityWarn })
	if i < 0 || !strings.Contains(told.Findings[i].What, "prefix caching is off") || !strings.Contains(told.Findings[i].Fix, "--enable-prefix-caching") {
		t.Errorf("findings: %+v", told.Findings)
	}
	if told = newWard(t, func(prefill, _ *vllmsim.Config) { prefill.NoPrefixCaching = true }, "--hand-back", "off").examine(t); slices.ContainsFunc(told.Findings, func(f finding) bool {
		return f.Code == codeHandBack && strings.Contains(f.What, "prefix caching")
	}) {
		t.Errorf("with --hand-back off: %+v", told.Findings)
	}
}
