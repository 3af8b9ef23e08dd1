package doctor

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// severity is how bad a finding is.
type severity string

// The severities, the worst first.
const (
	severityError severity = "error" // KV is not reused, or turns fail
	severityWarn  severity = "warn"  // less is reused than could be, or it may end
	severityOK    severity = "ok"    // the check holds
)

// finding is the result of one check.
type finding struct {
	Severity severity `json:"severity"`
	Code     string   `json:"code"`  // a stable code of the table in table.go
	Where    string   `json:"where"` // "configuration", "redis", "prefill NAME", "decode NAME", "NAME -> NAME", "front URL"
	What     string   `json:"what"`  // what was found, or what holds
	Why      string   `json:"why,omitempty"`
	Fix      string   `json:"fix,omitempty"`
}

// Places of findings that belong to no instance.
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
	places   []string // the order in which places are shown
	pairs    int      // pairs of the fleet
	probed   int      // pairs that were probed
	requests int      // completions of the pairs, as clients count them
}

func newDoctorReport() *doctorReport {
	return &doctorReport{findings: []finding{}, notes: []string{}, places: []string{whereSettings, whereRedis}}
}

// place adds a place; its findings are shown after those of earlier places.
func (r *doctorReport) place(where string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places = append(r.places, where)
}

// found adds a problem. details are pairs: a name in braces, as in the code's reason and fix, and the text that replaces it.
func (r *doctorReport) found(where, code, what string, details ...string) {
	d, named := diagnoses()[code], strings.NewReplacer(details...)
	r.add(finding{Severity: d.severity, Code: code, Where: where, What: what, Why: named.Replace(d.why), Fix: named.Replace(d.fix)})
}

// holds records that a check found no problem; if what is "", the text of the code is used.
func (r *doctorReport) holds(where, code, what string) {
	if what == "" {
		what = diagnoses()[code].holds
	}
	r.add(finding{Severity: severityOK, Code: code, Where: where, What: what})
}

// check adds the problem what or, if what is "", records that there is none. It reports whether there is none.
func (r *doctorReport) check(where, code, what string, details ...string) bool {
	if what == "" {
		r.holds(where, code, "")
		return true
	}
	r.found(where, code, what, details...)
	return false
}

// add adds a finding. A check that holds appears once for a code and place, and not beside a problem.
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

// note adds a sentence about the examination itself.
func (r *doctorReport) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, printable(text))
}

// sent counts the completions that a pair has got.
func (r *doctorReport) sent(requests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probed++
	r.requests += requests
}

// printable escapes characters that a terminal would obey or not show, because engines choose their own texts.
func printable(text string) string {
	if !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return text
	}
	var b strings.Builder
	for _, c := range text {
		if unicode.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(c), "'"))
	}
	return b.String()
}

// harmless are the characters that have no meaning to a shell.
const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,"

// shellWord returns the replacement for a name in braces in a fix, which users copy into a shell: the engine's text, or the name itself if
// the shell would read the text as more than a word, or as an option.
func shellWord(name, text string) string {
	if strings.Trim(text, harmless) != "" || strings.HasPrefix(text, "-") {
		return name
	}
	return text
}

// count returns the number of findings of a severity.
func (r *doctorReport) count(of severity) (n int) {
	for _, f := range r.findings {
		if f.Severity == of {
			n++
		}
	}
	return n
}

// has reports whether a problem with that code was found at a place.
func (r *doctorReport) has(where, code string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.findings, func(f finding) bool {
		return f.Where == where && f.Code == code && f.Severity != severityOK
	})
}

// sort sorts findings by place, then severity (the worst first), then the order of the table.
func (r *doctorReport) sort() {
	at := func(f finding) int {
		if i := slices.Index(r.places, f.Where); i >= 0 {
			return i
		}
		return len(r.places)
	}
	grave, codes := []severity{severityError, severityWarn, severityOK}, doctorCodes()
	slices.SortStableFunc(r.findings, func(a, b finding) int {
		for _, n := range []int{
			at(a) - at(b), slices.Index(grave, a.Severity) - slices.Index(grave, b.Severity),
			slices.Index(codes, a.Code) - slices.Index(codes, b.Code),
		} {
			if n != 0 {
				return n
			}
		}
		return strings.Compare(a.What, b.What)
	})
}
