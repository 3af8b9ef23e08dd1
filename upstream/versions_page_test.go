package upstream

import (
	"carryover/upstream/body"
	"fmt"
	"slices"
	"strings"
)

// versionTable returns [AnswerTable] as a Markdown table, a line for each API and form. Releases with equal columns
// share one.
func versionTable() string {
	columns := map[string][]string{} // by release, the cells of a column
	names := []string{}              // of columns, each the releases that share it
	for _, release := range Releases() {
		var cells []string
		for _, row := range AnswerTable() {
			if row.Release == release.Release {
				cells = append(cells, row.cell())
			}
		}
		if last := len(names) - 1; last >= 0 && slices.Equal(columns[names[last]], cells) {
			shared := names[last] + ", " + release.Release
			columns[shared], names[last] = cells, shared
			continue
		}
		columns[release.Release], names = cells, append(names, release.Release)
	}
	var b strings.Builder
	b.WriteString("| answers of | ")
	b.WriteString(strings.Join(names, " | "))
	b.WriteString(" |\n|---|" + strings.Repeat("---|", len(names)) + "\n")
	for n, row := range AnswerTable()[:2*body.APIs] {
		form := "whole"
		if row.Stream {
			form = "stream"
		}
		fmt.Fprintf(&b, "| `%s`, %s |", row.API.Path(), form)
		for _, name := range names {
			b.WriteString(" " + columns[name][n] + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell returns the text of a row's cell.
func (r AnswerFacts) cell() string {
	var says []string
	switch {
	case r.Params:
		says = append(says, "params")
	default:
		says = append(says, "no params")
	}
	switch {
	case r.IDs != "":
		says = append(says, "ids by `"+r.IDs+"`")
	default:
		says = append(says, "no ids")
	}
	text := strings.Join(says, ", ")
	if r.PlugIn != "" {
		text += "; both with plug-in " + r.PlugIn
	}
	return text
}
