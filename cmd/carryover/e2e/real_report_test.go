//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// report is what the suite prints at its end: one row for each thing that must hold.
type report struct {
	began    time.Time
	duration string // what its duration says
	rows     []row
}

type row struct{ line, what, result, numbers string }

// add notes how one thing went. It is called when all assertions about it have been made by t.
func (r *report) add(t *testing.T, line, what, numbers string, args ...any) {
	t.Helper()
	r.rows = append(r.rows, row{line, what, choose(t.Failed(), "FAILED", "ok"), fmt.Sprintf(numbers, args...)})
}

// line runs one line of the suite and reports it, also when it ends early.
func (r *report) line(t *testing.T, line, what string, check func(t *testing.T) string) {
	t.Helper()
	t.Run(line+" "+what, func(t *testing.T) {
		began := time.Now()
		numbers := "ended early"
		defer func() { r.add(t, line, what, "%s (%s)", numbers, seconds(time.Since(began))) }()
		numbers = check(t)
	})
}

func (r *report) write(to io.Writer) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nline\twhat\tresult\tnumbers\n")
	for _, row := range r.rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", row.line, row.what, row.result, strings.ReplaceAll(row.numbers, "\n", " "))
	}
	_ = table.Flush() // standard output
	fmt.Fprintf(to, "in %s, %s\n", seconds(time.Since(r.began)), r.duration)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func share(part, whole int) string {
	if whole == 0 {
		return "0 of 0"
	}
	return fmt.Sprintf("%d of %d = %d %%", part, whole, 100*part/whole)
}
