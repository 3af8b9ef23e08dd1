package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"carryover/upstream"
	"carryover/upstream/body"
)

// text prints the report for people: by place, the problems and below each its fix, and possible improvements. It only counts checks that
// hold, unless all is set. A clean result is followed by a list of what the doctor cannot see.
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
		for _, line := range []struct{ name, text string }{{"why", f.Why}, {"fix", f.Fix}} {
			if line.text != "" {
				fmt.Fprintf(&b, "        %s: %s\n", line.name, line.text)
			}
		}
	}
	for _, note := range r.notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	fmt.Fprintln(&b, r.summary())
	if all || r.count(severityError)+r.count(severityWarn) == 0 {
		fmt.Fprintln(&b, "not checked, because it does not show from outside:")
		for _, note := range unseen() {
			fmt.Fprintf(&b, "  %s\n", note)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// unseen returns what no examination shows.
func unseen() []string {
	return []string{
		"whether engines reach each other at their KV addresses shows in hand-overs only",
		"kv_load_failure_policy shows only where a load fails: leave it at fail",
		"engines don't tell decoder_kv_blocks_ttl: --decoder-kv-ttl has to say it",
		"engines don't tell which nixl they have: " + oldestNIXL(),
		"engines don't tell their plug-in: on vLLM 0.33 streams of /v1/messages leave tickets with version " + messagesPlugIn() + " or newer of it on decode",
		"engines don't tell kv_recompute_threshold (64 tokens unless it is set): where prefill lacks fewer of what is handed back it computes them, and decode is free all the same",
	}
}

// oldestNIXL says which releases ask for a nixl.
func oldestNIXL() string {
	var asks []string
	for _, r := range upstream.Releases() {
		if r.NIXL != "" {
			asks = append(asks, fmt.Sprintf("vLLM %s does not start with one below %s", r.Release, r.NIXL))
		}
	}
	return strings.Join(asks, "; ")
}

// messagesPlugIn is the version of the plug-in that the newest release needs for streams of Messages.
func messagesPlugIn() string {
	releases := upstream.Releases()
	row, _ := upstream.AnswersOf(releases[len(releases)-1].Release, body.Messages, true)
	return row.PlugIn
}

// summary counts what was found.
func (r *doctorReport) summary() string {
	pairs := ""
	switch {
	case r.probed > 0:
		pairs = fmt.Sprintf("; %d of %s tried, with %s", r.probed, counted(r.pairs, "pair"), counted(r.requests, "short request"))
	case r.pairs > 0:
		pairs = fmt.Sprintf("; none of %s tried", counted(r.pairs, "pair"))
	}
	errs, warnings, holds := r.count(severityError), r.count(severityWarn), r.count(severityOK)
	if errs+warnings == 0 {
		return fmt.Sprintf("all %d checks hold%s", holds, pairs)
	}
	return fmt.Sprintf("%s, %s, %d checks hold%s", counted(errs, "error"), counted(warnings, "warning"), holds, pairs)
}

// counted returns a count with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// json prints the report for programs, always with what holds.
func (r *doctorReport) json(out io.Writer, _ bool) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(struct {
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
		r.count(severityError) == 0, r.count(severityError), r.count(severityWarn), r.count(severityOK), r.pairs, r.probed, r.requests, append(r.notes, unseen()...), r.findings,
	})
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return nil
}
