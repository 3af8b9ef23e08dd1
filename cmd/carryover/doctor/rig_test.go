package doctor

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/cmd/carryover/command/commandtest"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// ward is simulated instances, and the command line of a program in front of them.
type ward struct {
	prefill, decode *vllmsim.Instance
	args            []string
	env             []string
	options         options
}

// newWard starts an instance of each role, the second configuration changed by change.
func newWard(t *testing.T, change func(prefill, decode *vllmsim.Config), flags ...string) *ward {
	t.Helper()
	p, d := vllmsim.DefaultConfig(), vllmsim.DefaultConfig()
	p.Role, d.Role = config.RolePrefill, config.RoleDecode
	if change != nil {
		change(&p, &d)
	}
	w := &ward{prefill: testrig.StartInstance(t, p, ""), decode: testrig.StartInstance(t, d, ""), options: options{timeout: time.Minute}}
	w.args = slices.Concat(testrig.Patient(), []string{"--prefill", w.prefill.URL(), "--decode", w.decode.URL()}, flags)
	return w
}

// doctored is what the command prints as JSON.
type doctored struct {
	Healthy                 bool
	Errors, Warnings, Holds int
	Requests                int
	Notes                   []string
	Findings                []finding
}

// examineBy runs the doctor with a configuration.
func examineBy(t *testing.T, cfg config.Config, o options) doctored {
	t.Helper()
	var stdout, stderr bytes.Buffer
	o.json = true
	err := runDoctor(t.Context(), cfg, o, &stdout, &stderr)
	var told doctored
	if broken := json.Unmarshal(stdout.Bytes(), &told); broken != nil {
		t.Fatalf("%v: %s", broken, stdout.String())
	}
	if (err != nil) != (told.Errors > 0 || o.strict && told.Warnings > 0) {
		t.Errorf("the command ends with %v and %d errors", err, told.Errors)
	}
	return told
}

// examine runs the doctor in front of the ward.
func (w *ward) examine(t *testing.T) doctored {
	t.Helper()
	cfg, err := configtest.Load(t, strings.Join(w.args, " "), w.env...)
	must(t, err)
	return examineBy(t, cfg, w.options)
}

// wrong are the findings that do not hold.
func (d *doctored) wrong() (list []finding) {
	for _, f := range d.Findings {
		if f.Severity != severityOK {
			list = append(list, f)
		}
	}
	return list
}

// find returns the finding of a code that does not hold; the test ends without one.
func (d *doctored) find(t *testing.T, code string) finding {
	t.Helper()
	for _, f := range d.wrong() {
		if f.Code == code {
			return f
		}
	}
	t.Fatalf("no finding %s in %+v", code, d.wrong())
	return finding{}
}

// nothingLeft asserts that the doctor has left nothing in the instances: no block is pinned but for the lease of one-token requests, which are
// releases and probes of engines that ignore ids, and nothing was read wrongly or twice.
func nothingLeft(t *testing.T, prefill, decode []*vllmsim.Instance) {
	t.Helper()
	for _, i := range slices.Concat(prefill, decode) {
		s := i.Stats()
		if s.CorruptReads+s.Poisoned+s.DoubleReads+s.ExpiredReads+s.UnknownReads+s.Deaths+s.Parked+s.LateNotifications > 0 {
			t.Errorf("%s: %+v", i.URL(), s)
		}
	}
	for _, i := range decode {
		if !testrig.Eventually(func() bool { return i.Stats().Pins == i.Stats().LeasedPins }) {
			t.Errorf("decode holds %d pins, %d of them with a lease", i.Stats().Pins, i.Stats().LeasedPins)
		}
	}
	for _, i := range prefill {
		if s := i.Stats(); s.PinnedTokens > s.Pins {
			t.Errorf("prefill holds %d tokens of %d requests, want those of releases only, one each", s.PinnedTokens, s.Pins)
		}
	}
}

func runCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return commandtest.Run(t, NewCommand(nil), args...)
}
