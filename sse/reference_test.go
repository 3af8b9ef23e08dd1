package sse

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// verdictOf makes the verdict a function of the data, so that the oracle and the relay agree on it.
func verdictOf(data []byte) Verdict {
	for v, word := range []string{Hold: "hold", Await: "await", Drop: "drop", Supersede: "super", Stop: "stop"} {
		if word != "" && bytes.Contains(data, []byte(word)) {
			return Verdict(v)
		}
	}
	return Forward
}

// replacement is one call of Event.Replace.
type replacement struct {
	from, to int
	with     string
}

// replacementsOf makes the edits, too, a function of the data: the arrays [5] and [1] become null and nothing, and
// data with the word "edit" gets random edits, bad ones among them.
func replacementsOf(data string, seed uint64) (all []replacement) {
	if seed&32 == 0 {
		return nil
	}
	for _, array := range lists.FindAllStringIndex(data, -1) {
		all = append(all, replacement{array[0], array[1], map[bool]string{true: "null"}[data[array[0]+1] == '5']})
	}
	if strings.Contains(data, "edit") {
		sum := fnv.New64()
		_, _ = io.WriteString(sum, data)
		rnd := rand.New(rand.NewPCG(sum.Sum64(), seed))
		for range rnd.IntN(6) {
			from := rnd.IntN(len(data)+4) - 2
			with := []string{"", "x", "longer than an id", "a\nb", "\r", strings.Repeat("very ", 100)}[rnd.IntN(6)]
			all = append(all, replacement{from, from + rnd.IntN(12) - 1, with})
		}
	}
	rand.New(rand.NewPCG(seed, 2)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

var lists = regexp.MustCompile(`\[[15]\]`)

var lineForm = regexp.MustCompile(`[^\r\n]*(?:\r\n|\r|\n)`)

// reference says what a relay of the whole input must do. It shares no code with the relay.
func reference(input string, cfg Config, broken bool, seed uint64) outcome {
	var want outcome
	var held string
	holding, last := false, 0 // bytes of the event held last, with the comments behind it
	awaits := false
	// aside does what becomes of lines without data.
	aside := func(sent string, empty bool) {
		size := len(sent) - strings.Count(sent[len(sent)-1:], "\n")*strings.Count(sent[max(0, len(sent)-2):], "\r\n")
		waits := holding && !empty
		switch {
		case holding && !waits && size <= cfg.MaxEvent:
			rest, marked := strings.CutPrefix(held, "\xef\xbb\xbf")
			if marked = marked && want.Out == ""; marked {
				want.Out, held = "\xef\xbb\xbf", rest
			}
			want.Out += sent
		case waits && len(held+sent) <= cfg.MaxEvent:
			held += sent
			if holding {
				last += len(sent)
			}
		default:
			want.Out, held, holding, last = want.Out+held+sent, "", false, 0
		}
	}
	if rest, ok := strings.CutPrefix(input, "\xef\xbb\xbf"); ok {
		held, input = "\xef\xbb\xbf", rest
	}
	var block []string
	for _, line := range lineForm.FindAllString(input, -1) {
		input = input[len(line):]
		if len(block) == 0 && (line[0] == ':' || strings.Trim(line, "\r\n") == "") {
			aside(line, true)
			continue
		}
		block = append(block, line)
		if strings.Trim(line, "\r\n") != "" {
			continue
		}
		raw := strings.Join(block, "")
		verdict, sent := Forward, raw
		data, places := referenceData(block)
		switch {
		case len(raw)-strings.Count(line, "\r\n") > cfg.MaxEvent:
			want.Oversize++
			if cfg.Bounded {
				verdict = Stop
			}
		case places == nil:
			aside(raw, false)
			block = nil
			continue
		default:
			null := false
			if !slices.Contains(places, -1) {
				raw, data, places, null = referenceNull(raw, data, places, cfg.Strip)
			}
			member, gone := referenceCut(data, cfg.Strip)
			if null || member == "null" {
				member = ""
			}
			var edits string
			sent, edits = referenceEdit(raw, data, places, gone, replacementsOf(data, seed))
			want.Events = append(want.Events, data+"\x00"+member+edits)
			verdict = verdictOf([]byte(data))
			if len(gone) > 0 && verdict != Stop && !referenceSubstance(data, gone, cfg.Substance) {
				verdict = Drop
			}
		}
		block = nil
		switch {
		case verdict == Stop:
			want.Stopped = true
			return want
		case awaits && verdict != Await:
			want.Out, held, holding, last = want.Out+held, "", false, 0
		}
		awaits = false
		switch {
		case verdict == Drop, verdict == Supersede && last == 0:
		case (verdict == Hold || verdict == Await) && len(held+sent) <= cfg.MaxEvent:
			awaits = verdict == Await
			held, holding, last = held+sent, true, len(sent)
		default:
			if verdict == Supersede {
				held = held[:len(held)-last]
			}
			want.Out, held, holding, last = want.Out+held+sent, "", false, 0
		}
	}
	partial := strings.Join(block, "") + input
	switch {
	case len(partial) > cfg.MaxEvent && len(block) == 0 && partial[0] == ':':
		want.Out += held + partial
		want.MidEvent = true
	case len(partial) > cfg.MaxEvent:
		want.Oversize++
		if cfg.Bounded {
			want.Stopped = true
			break
		}
		fallthrough
	case !broken:
		want.Out += held + partial
		want.MidEvent = partial != ""
	}
	return want
}

// referenceData returns the data of an event's lines and, for each of its bytes, the place in the event; nil without data.
func referenceData(block []string) (data string, places []int) {
	off := 0
	for _, line := range block {
		name, value, colon := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if name == "data" {
			start := off + len(name)
			if colon {
				start++
			}
			if strings.HasPrefix(value, " ") {
				start, value = start+1, value[1:]
			}
			if places != nil {
				data += "\n"
				places = append(places, -1)
			}
			if places == nil {
				places = []int{}
			}
			data += value
			for i := range len(value) {
				places = append(places, start+i)
			}
		}
		off += len(line)
	}
	return data, places
}

// referenceNull takes the member out of an event that ends in a list of objects and the member, which is null.
func referenceNull(raw, data string, places []int, member string) (string, string, []int, bool) {
	before, null := strings.CutSuffix(data, `,"`+member+`":null}`)
	if !null || !strings.HasPrefix(before, "{") || !strings.HasSuffix(before, "}]") {
		return raw, data, places, false
	}
	last := places[len(places)-1]
	at := places[len(before)]
	return raw[:at] + raw[last:], before + "}", places[:len(before)+1], true
}

// referenceCut finds the member with json.Decoder, and the ranges of data that go with it.
func referenceCut(data, member string) (value string, gone [][2]int) {
	if member == "" || !json.Valid([]byte(data)) || strings.TrimLeft(data, " \t\r\n")[0] != '{' {
		return "", nil
	}
	dec := json.NewDecoder(strings.NewReader(data))
	dec.UseNumber()
	_, _ = dec.Token()
	end := int(dec.InputOffset())
	stays := false
	for dec.More() {
		before := end
		name, _ := dec.Token()
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return "", nil
		}
		end = int(dec.InputOffset())
		if name != member {
			stays = true
			continue
		}
		value = string(v)
		cut := [2]int{before + strings.Index(data[before:], `"`), end}
		if stays {
			cut[0] = before + strings.Index(data[before:], ",")
		} else if after := strings.TrimLeft(data[end:], " \t\r\n"); after[0] == ',' {
			cut[1] = len(data) - len(after) + 1
		}
		gone = append(gone, cut)
	}
	return value, gone
}

// referenceEdit takes one range after the other if all of its bytes are free, and then builds raw anew byte by byte.
func referenceEdit(raw, data string, places []int, gone [][2]int, edits []replacement) (sent, accepted string) {
	taken := make([]bool, len(data))
	skip := make([]bool, len(raw))
	with := make([]string, len(raw))
	take := func(from, to int, text string) {
		for i := from; i < to; i++ {
			taken[i] = true
		}
		for i := places[from]; i <= places[to-1]; i++ {
			skip[i] = true
		}
		with[places[from]] = text
	}
	for _, cut := range gone {
		take(cut[0], cut[1], "")
	}
	for _, e := range edits {
		ok := e.from >= 0 && e.from < e.to && e.to <= len(data) && !strings.ContainsAny(e.with, "\r\n") &&
			places[e.from] >= 0 && places[e.to-1] >= 0 && !slices.Contains(taken[e.from:e.to], true)
		if ok {
			take(e.from, e.to, e.with)
		}
		accepted += fmt.Sprint(" ", ok)
	}
	for i := range len(raw) {
		sent += with[i]
		if !skip[i] {
			sent += raw[i : i+1]
		}
	}
	return sent, accepted
}

func referenceSubstance(data string, gone [][2]int, names []string) bool {
	for _, cut := range slices.Backward(gone) {
		data = data[:cut[0]] + data[cut[1]:]
	}
	dec := json.NewDecoder(strings.NewReader(data))
	_, _ = dec.Token()
	for dec.More() {
		name, _ := dec.Token()
		var v json.RawMessage
		_ = dec.Decode(&v)
		var compact bytes.Buffer
		_ = json.Compact(&compact, v)
		if slices.Contains(names, fmt.Sprint(name)) && !slices.Contains([]string{"null", "[]", "{}"}, compact.String()) {
			return true
		}
	}
	return len(names) == 0
}
