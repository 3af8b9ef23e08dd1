package bench

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"carryover/cmd/pdbench/contender"
)

// markdown returns the figures in the form of docs/benchmarks.md, which is readable on a terminal too.
func (r report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, in %s.\n%s.\n", r.Began.UTC().Format("2006-01-02 15:04 UTC"), r.Took.Round(time.Second), r.Machine)
	if r.Brief {
		b.WriteString("A smoke run: what it asserts is that nothing went wrong; its figures say nothing.\n")
	}
	if len(r.Verdicts) > 0 {
		b.WriteString("\n" + r.barsTable())
	}
	b.WriteString("\n" + r.rawTables())
	if notes := r.notes(); notes != "" {
		b.WriteString("\n" + notes)
	}
	return b.String()
}

func (r report) barsTable() string {
	rows := [][]string{{"bar", "value", "must", "aim", ""}}
	for _, v := range r.Verdicts {
		value := "–"
		if v.Why == "" {
			value = v.text(v.Value)
		}
		rows = append(rows, []string{v.Name, value, v.limit(v.Must), v.limit(v.Aim), string(v.Word)})
	}
	return aligned(rows)
}

func (v verdict) limit(limit float64) string {
	switch {
	case limit == 0:
		return ""
	case v.Least:
		return "≥ " + v.text(limit)
	}
	return "≤ " + v.text(limit)
}

// text writes small ratios as fractions, like the bars.
func (v verdict) text(value float64) string {
	switch {
	case v.Unit != "":
		return threeDigits(value) + " " + v.Unit
	case !v.Least && value > 0 && v.fraction():
		return "1/" + threeDigits(1/value)
	}
	return fmt.Sprintf("%.2f", value)
}

// fraction reports whether the limits of the bar are fractions.
func (v verdict) fraction() bool {
	limit := cmp.Or(v.Must, v.Aim)
	return limit > 0 && limit < 0.3
}

// rawTables returns tables of requests, chunks and memory, with a line for each contender at each workload.
func (r report) rawTables() string {
	requests := [][]string{{"workload", "contender", "CPU µs/request", "requests/s", "of direct", "first byte p50 µs", "p99 µs", "added p50 µs", "hits %", "peak MB"}}
	chunks := [][]string{{"workload", "contender", "CPU µs/chunk", "chunks/s", "of direct", "gap p99 ms", "peak MB"}}
	memory := [][]string{{"workload", "contender", "KB/stream", "peak MB"}}
	for _, entry := range r.Results {
		table := &requests
		switch {
		case entry.Workload.Open:
			table = &memory
		case entry.Workload.Gap > 0:
			table = &chunks
		}
		*table = append(*table, append([]string{entry.Workload.Name, entry.Contender}, r.row(entry)...))
	}
	var text []string
	for _, table := range [][][]string{requests, chunks, memory} {
		if len(table) > 1 {
			text = append(text, aligned(table))
		}
	}
	return strings.Join(text, "\n")
}

// row returns the cells behind the names of workload and contender.
func (r report) row(of entry) []string {
	m := of.Median
	switch {
	case of.NotMeasured != "":
		return []string{string(notMeasured)}
	case len(of.Wrong) > 0:
		return []string{string(doesNotCount)}
	case of.Workload.Open:
		return []string{m.text(streamKB), m.text(peakMB)}
	case of.Workload.Gap > 0:
		return []string{m.text(cpuChunk), m.text(chunkRate), r.ofDirect(of), m.text(gapP99), m.text(peakMB)}
	}
	hits := ""
	if reuses(of.Contender) {
		hits = m.text(hitPercent)
	}
	return []string{m.text(cpuTurn), m.text(turnRate), r.ofDirect(of), m.text(firstP50), m.text(firstP99), r.added(of), hits, m.text(peakMB)}
}

// ofDirect returns requests or chunks per second as a share of direct's.
func (r report) ofDirect(of entry) string {
	for _, f := range []figure{turnRate, chunkRate} {
		direct := &reader{results: r.Results}
		if all := direct.get(of.Workload.Name, contender.Direct, f); direct.missing == nil && all > 0 && of.Median[f] > 0 {
			return fmt.Sprintf("%.2f", of.Median[f]/all)
		}
	}
	return ""
}

// added returns the time to the first byte beyond direct's, for a single client only: with more clients it is the time in queues.
func (r report) added(of entry) string {
	direct := &reader{results: r.Results}
	least := direct.get(of.Workload.Name, contender.Direct, firstP50)
	if direct.missing != nil || of.Workload.Conversations > 1 || of.Contender == contender.Direct {
		return ""
	}
	return threeDigits(of.Median[firstP50] - least)
}

func (f figures) text(name figure) string {
	value, ok := f[name]
	if !ok {
		return ""
	}
	return threeDigits(value)
}

// threeDigits writes three digits, or all before the point.
func threeDigits(value float64) string {
	size := math.Abs(value)
	switch {
	case size >= 100:
		return fmt.Sprintf("%.0f", value)
	case size >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// notes explains "not measured" and "does not count".
func (r report) notes() string {
	var b strings.Builder
	said := map[string]bool{}
	say := func(format string, a ...any) {
		if line := fmt.Sprintf(format, a...); !said[line] {
			said[line] = true
			b.WriteString("- " + line + "\n")
		}
	}
	for _, entry := range r.Results {
		if entry.NotMeasured != "" {
			say("%s is not measured: %s", entry.Contender, entry.NotMeasured)
		}
		for _, wrong := range entry.Wrong {
			say("%s at %s does not count: %s", entry.Contender, entry.Workload.Name, wrong)
		}
	}
	return b.String()
}

// aligned writes a Markdown table with aligned columns. Rows may be shorter than the first.
func aligned(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	line := func(row []string, fill string) {
		for i, width := range widths {
			cell := ""
			if i < len(row) {
				cell = row[i]
			}
			b.WriteString("| " + cell + strings.Repeat(fill, width-utf8.RuneCountInString(cell)) + " ")
		}
		b.WriteString("|\n")
	}
	for i, row := range rows {
		line(row, " ")
		if i == 0 {
			line(nil, "-")
		}
	}
	return b.String()
}
