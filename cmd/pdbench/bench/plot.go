package bench

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"

	"carryover/cmd/pdbench/contender"
)

// Measures of the plot, in pixels.
const (
	plotWidth   = 860
	plotLeft    = 130 // names of contenders
	plotRight   = 110 // values
	plotBar     = 20
	plotStep    = 27
	plotHeading = 58
	plotFoot    = 34
)

// panel is one group of bars: a figure at a workload, in multiples of nginx'.
type panel struct {
	title    string
	workload string
	figure   figure
	unit     string
}

func panels() []panel {
	return []panel{
		{"CPU per request: 64 conversations, streams of 16 chunks (W1)", w1, cpuTurn, "µs"},
		{"CPU per request: 16 conversations that begin with 256 KB (W3)", w3, cpuTurn, "µs"},
		{"CPU per chunk: 100 streams of 50 chunks a second (W2s)", w2s, cpuChunk, "µs"},
	}
}

// colour of a contender's bars: ours stands out.
func colour(name string) string {
	switch name {
	case contender.Carryover:
		return "#1f6feb"
	case contender.CarryoverStd:
		return "#8cb8f5"
	case contender.Python:
		return "#d1862c"
	}
	return "#8a929c"
}

// plot returns an SVG with a panel for each figure. Bars are on a logarithmic scale, because python's are fifty times as long as
// nginx': each line is ten times the one before.
func (r report) plot() string {
	var body strings.Builder
	y := 24
	text(&body, 20, y, "start", "font-size=\"17\" font-weight=\"bold\"", "What a request and a chunk cost, in multiples of one hop through nginx")
	y += 20
	text(&body, 20, y, "start", "fill=\"#57606a\"", "CPU time of the proxy's processes, medians of one run, logarithmic scale; nginx and relay do one hop and no prefill")
	y += 17
	text(&body, 20, y, "start", "fill=\"#57606a\"", r.Machine.short()+", "+r.Began.UTC().Format(time.DateOnly))
	for _, p := range panels() {
		y = r.panel(&body, p, y)
	}
	height := y + plotFoot
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12" fill="#1f2328">
<rect width="100%%" height="100%%" fill="#ffffff"/>
%s</svg>
`, plotWidth, height, plotWidth, height, body.String())
}

// panel draws one below y, and returns where it ends.
func (r report) panel(b *strings.Builder, p panel, y int) int {
	type bar struct {
		contender    string
		value, times float64
	}
	from := &reader{results: r.Results}
	one := from.get(p.workload, contender.Nginx, p.figure)
	var list []bar
	for _, c := range contender.All() {
		reads := &reader{results: r.Results}
		if value := reads.get(p.workload, c.Name, p.figure); reads.missing == nil && value > 0 {
			list = append(list, bar{c.Name, value, value / one})
		}
	}
	y += plotHeading
	text(b, 20, y-16, "start", "font-size=\"14\" font-weight=\"bold\"", p.title)
	if from.missing != nil || one <= 0 {
		text(b, plotLeft, y+14, "start", "", "not measured")
		return y + plotStep
	}
	least, most := 1.0, 10.0
	for _, bar := range list {
		least, most = min(least, bar.times), max(most, bar.times)
	}
	low, high := math.Floor(math.Log10(least)*2)/2-0.5, math.Ceil(math.Log10(most)*2)/2
	at := func(times float64) int {
		return plotLeft + int(math.Round((math.Log10(times)-low)/(high-low)*(plotWidth-plotLeft-plotRight)))
	}
	bottom := y + len(list)*plotStep
	for power := math.Ceil(low); power <= high; power++ {
		x := at(math.Pow(10, power))
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#d0d7de"/>`+"\n", x, y-4, x, bottom)
		text(b, x, bottom+12, "middle", "fill=\"#57606a\" font-size=\"11\"", fmt.Sprintf("%g×", math.Pow(10, power)))
	}
	for i, bar := range list {
		top := y + i*plotStep
		end := at(bar.times)
		text(b, plotLeft-8, top+14, "end", "", bar.contender)
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="2" fill="%s"/>`+"\n", plotLeft, top, max(1, end-plotLeft), plotBar, colour(bar.contender))
		text(b, end+6, top+14, "start", "", fmt.Sprintf("%s×  (%s %s)", threeDigits(bar.times), threeDigits(bar.value), p.unit))
	}
	return bottom + 12
}

// text draws a line of it.
func text(b *strings.Builder, x, y int, anchor, attributes, content string) {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(content)) // a strings.Builder takes everything
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, attributes, escaped.String())
}
