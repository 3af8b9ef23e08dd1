package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

type severity string

const (
	severityError severity = "error" // KV is not reused, or turns fail
	severityWarn  severity = "warn"  // less is reused than could be, or reuse may end
	severityOK    severity = "ok"    // the check passes
)

type finding struct {
	Severity severity `json:"severity"`
	Code     string   `json:"code"`  // stable
	Where    string   `json:"where"` // "configuration", "redis", "prefill NAME", "decode NAME", "NAME -> NAME", "front URL"
	What     string   `json:"what"`  // the problem, or the fact that holds
	Why      string   `json:"why,omitempty"`
	Fix      string   `json:"fix,omitempty"`
}

// Findings that belong to no instance.
const (
	whereSettings = "configuration"
	whereRedis    = "redis"
	whereDoctor   = "doctor"
)

// doctorReport collects findings. It is safe for concurrent use.
type doctorReport struct {
	mu       sync.Mutex // guards the rest
	findings []finding
	notes    []string
	places   []string // in the order of the text
	pairs    int      // pairs of the fleet
	probed   int      // pairs that were probed
	requests int      // completions of the pairs, as clients count them
}

func newDoctorReport() *doctorReport {
	return &doctorReport{findings: []finding{}, notes: []string{}, places: []string{whereSettings, whereRedis}}
}

func (r *doctorReport) place(where string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places = append(r.places, where)
}

// found adds a problem. details are pairs of a name in braces, as in the code's why and fix, and its replacement.
func (r *doctorReport) found(where, code, what string, details ...string) {
	d, named := diagnoses[rowOf(code)], strings.NewReplacer(details...)
	r.add(finding{Severity: d.severity, Code: code, Where: where, What: what, Why: named.Replace(d.why), Fix: named.Replace(d.fix)})
}

// holds records a passed check; the default text is the code's.
func (r *doctorReport) holds(where, code, what string) {
	r.add(finding{Severity: severityOK, Code: code, Where: where, What: cmp.Or(what, diagnoses[rowOf(code)].holds)})
}

// check adds the problem what, or a passed check if what is "". It reports whether the check passed.
func (r *doctorReport) check(where, code, what string, details ...string) bool {
	if what == "" {
		r.holds(where, code, "")
		return true
	}
	r.found(where, code, what, details...)
	return false
}

// problem returns "" if a check passes, else the text.
func problem(passes bool, format string, args ...any) string {
	if passes {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// add drops a passed check that is already there, or that stands beside a problem of its code and place.
func (r *doctorReport) add(f finding) {
	f.What = printable(f.What)
	r.mu.Lock()
	defer r.mu.Unlock()
	same := func(g finding) bool { return g.Where == f.Where && g.Code == f.Code }
	if f.Severity == severityOK {
		if !slices.ContainsFunc(r.findings, same) {
			r.findings = append(r.findings, f)
		}
		return
	}
	r.findings = append(slices.DeleteFunc(r.findings, func(g finding) bool { return same(g) && g.Severity == severityOK }), f)
}

func (r *doctorReport) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, printable(text))
}

// printable escapes control characters, because engines choose their own texts.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}

const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,"

// shellWord returns the replacement of a name in a fix, which users copy into a shell. It keeps the name if the engine's text is more than a
// word to the shell, or an option.
func shellWord(name, text string) string {
	if strings.Trim(text, harmless) != "" || strings.HasPrefix(text, "-") {
		return name
	}
	return text
}

func (r *doctorReport) count(of severity) (n int) {
	for _, f := range r.findings {
		if f.Severity == of {
			n++
		}
	}
	return n
}

// sort sorts by place, then severity (the worst first), then the order of the table.
func (r *doctorReport) sort() {
	at := func(f finding) int {
		if i := slices.Index(r.places, f.Where); i >= 0 {
			return i
		}
		return len(r.places)
	}
	grave := []severity{severityError, severityWarn, severityOK}
	slices.SortStableFunc(r.findings, func(a, b finding) int {
		return cmp.Or(
			at(a)-at(b), slices.Index(grave, a.Severity)-slices.Index(grave, b.Severity), rowOf(a.Code)-rowOf(b.Code), strings.Compare(a.What, b.What),
		)
	})
}

// text prints problems with their fixes by place. It only counts passed checks, unless all is set. A clean result ends with a list of what
// the doctor cannot see.
func (r *doctorReport) text(out io.Writer, all bool) error {
	var b strings.Builder
	place := ""
	for _, f := range r.findings {
		if f.Severity == severityOK && f.Fix == "" && !all {
			continue
		}
		if f.Where != place {
			place = f.Where
			fmt.Fprintf(&b, "%s\n", place)
		}
		fmt.Fprintf(&b, "  %-6s%s: %s\n", f.Severity, f.Code, f.What)
		if f.Fix != "" {
			fmt.Fprintf(&b, "        why: %s\n        fix: %s\n", f.Why, f.Fix)
		}
	}
	for _, note := range r.notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	fmt.Fprintln(&b, r.summary())
	if all || r.count(severityError)+r.count(severityWarn) == 0 {
		fmt.Fprintf(&b, "not checked, because it is invisible from outside:\n  %s\n", strings.Join(unseen, "\n  "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

var unseen = []string{ //nolint:gochecknoglobals // a constant
	"whether engines reach each other at their KV addresses: only hand-overs show it",
	"kv_load_failure_policy: only a failed load shows it; leave it at fail",
	"decoder_kv_blocks_ttl: engines don't report it, so --decoder-kv-ttl has to equal it",
	"the version of the engines' plug-in: they don't report it; docs/getting-started.md says which one each release needs",
	"kv_recompute_threshold (64 tokens by default): if prefill lacks fewer tokens of a hand-back, it computes them, and decode's blocks are free all the same",
}

func (r *doctorReport) summary() string {
	pairs := ""
	if r.pairs > 0 {
		pairs = fmt.Sprintf("; %d of %s tried, with %s", r.probed, counted(r.pairs, "pair"), counted(r.requests, "short request"))
	}
	errs, warnings, holds := r.count(severityError), r.count(severityWarn), r.count(severityOK)
	if errs+warnings == 0 {
		return fmt.Sprintf("all %d checks hold%s", holds, pairs)
	}
	return fmt.Sprintf("%s, %s, %d checks hold%s", counted(errs, "error"), counted(warnings, "warning"), holds, pairs)
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (r *doctorReport) json(out io.Writer, _ bool) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Healthy  bool      `json:"healthy"` // no errors
		Errors   int       `json:"errors"`
		Warnings int       `json:"warnings"`
		Holds    int       `json:"holds"`
		Pairs    int       `json:"pairs"`
		Tried    int       `json:"pairs_tried"`
		Requests int       `json:"requests"`
		Notes    []string  `json:"notes"`
		Findings []finding `json:"findings"`
	}{
		r.count(severityError) == 0, r.count(severityError), r.count(severityWarn), r.count(severityOK), r.pairs, r.probed, r.requests, slices.Concat(r.notes, unseen), r.findings,
	})
}
