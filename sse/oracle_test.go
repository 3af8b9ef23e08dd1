package sse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"carryover/sse/rawjson"
)

const params = "kv_transfer_params"

var errBroken = errors.New("connection reset")

// outcome is all that a caller can see of a relay.
type outcome struct {
	Out      string
	Events   []string // data, NUL, member, and of each edit whether it was accepted
	Stopped  bool
	Oversize int64
	MidEvent bool
}

func (o outcome) String() string {
	return fmt.Sprintf("out %+q, events %+q, stopped %t, oversize %d, mid-event %t", o.Out, o.Events, o.Stopped, o.Oversize, o.MidEvent)
}

// verdictOf makes the verdict a function of the data, so that the oracle and the relay agree on it.
func verdictOf(data []byte) Verdict {
	for v, word := range []string{Hold: "hold", Drop: "drop", Supersede: "super", Stop: "stop"} {
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

// pieces returns a reader that hands out input in pieces whose sizes come from seed, and then err, with the last piece
// or after it.
func pieces(input []byte, seed uint64, err error) io.Reader {
	rnd := rand.New(rand.NewPCG(seed, 1))
	limit := []int{1, 2, 7, 64, 5000}[rnd.IntN(5)]
	return readFunc(func(p []byte) (int, error) {
		n := min(len(p), len(input), rnd.IntN(limit+1))
		copy(p, input[:n])
		input = input[n:]
		if len(input) == 0 && (n == 0 || rnd.IntN(2) == 0) {
			return n, err
		}
		return n, nil
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// relayed runs the real thing.
func relayed(t *testing.T, src io.Reader, cfg Config, seed uint64) outcome {
	t.Helper()
	var got outcome
	var out strings.Builder
	cfg.Observe = func(e Event) Verdict {
		event := string(e.Data) + "\x00" + string(e.Member)
		with := make([]byte, 0, 1000)
		for _, r := range replacementsOf(string(e.Data), seed) {
			with = append(with[:0], r.with...)
			event += fmt.Sprint(" ", e.Replace(r.from, r.to, with))
		}
		got.Events = append(got.Events, event)
		return verdictOf(e.Data)
	}
	r := New(&out, nil, cfg)
	err := r.Run(src)
	var read *ReadError
	if errors.Is(err, ErrStopped) {
		got.Stopped = true
	} else if err != nil && !errors.As(err, &read) {
		t.Fatalf("Run: %v", err)
	}
	stats := r.Stats()
	if want := int64(len(got.Events)); stats.Events != want {
		t.Errorf("Stats.Events = %d, want %d", stats.Events, want)
	}
	if want := int64(out.Len()); stats.Bytes != want {
		t.Errorf("Stats.Bytes = %d, want %d", stats.Bytes, want)
	}
	got.Out, got.Oversize, got.MidEvent = out.String(), stats.Oversize, stats.MidEvent
	return got
}

var lineForm = regexp.MustCompile(`[^\r\n]*(?:\r\n|\r|\n)`)

// reference says what a relay of the whole input must do. It shares no code with the relay.
func reference(input string, cfg Config, broken bool, seed uint64) outcome {
	var want outcome
	var held string
	holding, last := false, 0 // bytes of the event held last, with the comments behind it
	if rest, ok := strings.CutPrefix(input, "\xef\xbb\xbf"); ok {
		held, input = "\xef\xbb\xbf", rest
	}
	var block []string
	for _, line := range lineForm.FindAllString(input, -1) {
		block = append(block, line)
		input = input[len(line):]
		if strings.Trim(line, "\r\n") != "" {
			continue
		}
		raw := strings.Join(block, "")
		verdict, sent := Forward, raw
		data, places := referenceData(block)
		switch {
		case len(raw)-strings.Count(line, "\r\n") > cfg.MaxEvent:
			want.Oversize++
		case places == nil && holding:
			verdict = Hold
		case places != nil:
			member, gone := referenceCut(data, cfg.Strip)
			if cfg.Expose {
				gone = nil
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
		case verdict == Drop, verdict == Supersede && last == 0:
		case verdict == Hold && len(held+sent) <= cfg.MaxEvent:
			if places != nil {
				last = 0
			}
			held, holding, last = held+sent, true, last+len(sent)
		default:
			if verdict == Supersede {
				held = held[:len(held)-last]
			}
			want.Out, held, holding, last = want.Out+held+sent, "", false, 0
		}
	}
	partial := strings.Join(block, "") + input
	switch {
	case len(partial) > cfg.MaxEvent:
		want.Oversize++
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

// compare checks one input under one configuration and one way of splitting it.
func compare(t *testing.T, input []byte, seed uint64) {
	t.Helper()
	cfg := Config{Strip: params, Expose: seed&1 != 0, MaxEvent: []int{DefaultMaxEvent, 0, 20, 150}[seed>>1&3]}
	if seed&8 != 0 {
		cfg.Substance = []string{"choices", "usage", params}
	}
	err, broken := io.EOF, seed&16 != 0
	if broken {
		err = errBroken
	}
	rules := cfg
	if cfg.MaxEvent == 0 {
		rules.MaxEvent = DefaultMaxEvent
	}
	rules.Substance = slices.DeleteFunc(slices.Clone(cfg.Substance), func(s string) bool { return s == params })
	want := reference(string(input), rules, broken, seed)
	got := relayed(t, pieces(input, seed, err), cfg, seed)
	if got.String() != want.String() {
		t.Errorf("seed %d, input %+q:\n got %v\nwant %v", seed, input, got, want)
	}
}

// vocabulary is what random streams are made of: line ends, fields and JSON in all the forms that matter.
var vocabulary = []string{
	"\n", "\n", "\r", "\r\n", "\n\n", "\r\r", "\r\n\r\n", ":", ": ping", "\xef\xbb\xbf", "\x00", "é", "😀",
	"data: ", "data:", "data", "data:\t", " data: ", "Data: ", "event: x", "id: 1\x00", "retry: 5", "hold", "drop", "stop",
	`{"kv_transfer_params":{"a":[1,"}"]}}`, `{"choices":[1],"kv_transfer_params":{"a":1}}`, `"kv_transfer_params"`,
	`{"kv_tran\u0073fer_params":null,"usage":{}}`, `{"x":1,"kv_transfer_params":1,"kv_transfer_params":2 , "y":[ ]}`,
	`{"x":"stop","kv_transfer_params":1}`, `{"x":"hold","usage":1,"kv_transfer_params":1}`, `{"x":"drop","kv_transfer_params":1}`,
	"data: {\ndata: \"kv_transfer_params\":\rdata: 1,\r\ndata: \"choices\":[1]}\n\n", "data:{\"usage\":1\n: ping\ndata:,\"kv_transfer_params\"\ndata::1\ndata:}\n\n",
	`{"choices":[{"kv_transfer_params":{"a":1}}]}`, `{"text":"\"kv_transfer_params\":{}"}`, "{", "}", ",", `"x":`, "1", "[DONE]",
	"edit", "[5]", "data: [5]\n\n", "data: [5][5][5]\r\n\r\n", `{"choices":[5],"kv_transfer_params":[5],"usage":[1]}`, "data: edit {\ndata: \"x\":[5]\ndata: }\n\n",
	`data: {"x":"edit","kv_transfer_params":1,"usage":{"a":[1]}}` + "\n\n", `data: {"x":"hold","usage":[5]}` + "\n\n",
}

func TestRelay_EqualsReferenceForRandomStreams(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(10000) {
		var input []byte
		for range rnd.IntN(20) {
			input = append(input, vocabulary[rnd.IntN(len(vocabulary))]...)
		}
		compare(t, input, seed)
		if t.Failed() {
			return
		}
	}
}

func TestRelay_EqualsReferenceForRecordedStreams(t *testing.T) {
	for name, stream := range recorded(t) {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(320) {
				compare(t, stream, seed)
			}
			for _, seed := range []uint64{0, 32} {
				want := reference(string(stream), Config{Strip: params, MaxEvent: DefaultMaxEvent}, false, seed)
				got := relayed(t, iotest.OneByteReader(bytes.NewReader(stream)), Config{Strip: params}, seed)
				if got.String() != want.String() {
					t.Errorf("byte by byte, seed %d:\n got %v\nwant %v", seed, got, want)
				}
			}
		})
	}
}

// recorded returns the streams of vLLM 0.32 under testdata.
func recorded(tb testing.TB) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(files) < 3 {
		tb.Fatalf("recorded streams: %d files, error %v", len(files), err)
	}
	streams := make(map[string][]byte)
	for _, file := range files {
		stream, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		streams[strings.TrimSuffix(filepath.Base(file), ".sse")] = stream
	}
	return streams
}

// tooDeep reports whether brackets are nested deeper than JSON is read: what is nested there is cut without being checked,
// while the references check all of it.
func tooDeep(input []byte) bool {
	open := 0
	for _, c := range input {
		switch c {
		case '[', '{':
			if open++; open > rawjson.MaxDepth {
				return true
			}
		case ']', '}':
			open = max(open-1, 0)
		}
	}
	return false
}

func FuzzRelay(f *testing.F) {
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		if !tooDeep(input) {
			compare(t, input, seed)
		}
	})
}
