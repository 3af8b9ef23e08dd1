package facts

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestReadMetrics_TellsStartAndBlockSize(t *testing.T) {
	const started = "process_start_time_seconds 1.79528076534e+09\n"
	cache := func(labels string) string { return "vllm:cache_config_info{" + labels + "} 1.0\n" }
	for _, row := range []struct {
		name, text, incarnation string
		block                   int
	}{
		{"recorded, with the start", recordedMetrics(t) + started, "1.79528076534e+09", 32},
		{"recorded KV lines have no start", recordedMetrics(t), "", 32},
		{"the literal text", "process_start_time_seconds 1795280765.340\n", "1795280765.340", 0},
		{"comments", "# HELP process_start_time_seconds 7\n# TYPE process_start_time_seconds gauge\n" + started, "1.79528076534e+09", 0},
		{"CRLF, spaces, time stamp", "process_start_time_seconds\t 5  1700000000\r\n", "5", 0},
		{"labels", "process_start_time_seconds{pid=\"7\"} 5\n", "5", 0},
		{"equal twice", started + started, "1.79528076534e+09", 0},
		{"two processes", started + "process_start_time_seconds 5\n", "", 0},
		{"NaN", "process_start_time_seconds NaN\n", "", 0},
		{"infinite", "process_start_time_seconds +Inf\n", "", 0},
		{"zero", "process_start_time_seconds 0\n", "", 0},
		{"no number", "process_start_time_seconds x\n", "", 0},
		{"no value", "process_start_time_seconds \n", "", 0},
		{"too many fields", "process_start_time_seconds 1 2 3\n", "", 0},
		{"long number", "process_start_time_seconds 1" + strings.Repeat("0", 40) + "\n", "", 0},
		{"another metric", "process_start_time_seconds_total 5\nx_process_start_time_seconds 6\nprocess_start_time_seconds5 7\n" + started, "1.79528076534e+09", 0},
		{"engines that agree", cache(`block_size="16",engine="0"`) + cache(`block_size="16",engine="1"`), "", 16},
		{"engines that differ", cache(`block_size="16",engine="0"`) + cache(`block_size="32",engine="1"`) + cache(`block_size="16",engine="2"`), "", 0},
		{"an engine without size", cache(`block_size="16",engine="0"`) + cache(`engine="1"`), "", 0},
		{"labels of like names", cache(`effective_attention_block_size="8",hash_block_size="4",block_size="16",mamba_block_size="None"`), "", 16},
		{"only labels of like names", cache(`hash_block_size="4"`), "", 0},
		{"spaces and a last comma", "vllm:cache_config_info { block_size = \"16\" , } 1\n", "", 16},
		{"escapes", cache(`a="\"},block_size=\"4\"",b="\\",block_size="16"`), "", 16},
		{"leading zero", cache(`block_size="016"`), "", 0},
		{"None", cache(`block_size="None"`), "", 0},
		{"zero block", cache(`block_size="0"`), "", 0},
		{"negative block", cache(`block_size="-16"`), "", 0},
		{"huge block", cache(`block_size="65537"`), "", 0},
		{"unfinished labels", cache(`block_size="16"`) + "vllm:cache_config_info{block_size=\"16\n", "", 0},
		{"unfinished labels first", "vllm:cache_config_info{block_size=\"16\n" + cache(`block_size="16"`), "", 0},
		{"a start without value first", "process_start_time_seconds \n" + started, "", 0},
		{"unfinished escape", "vllm:cache_config_info{block_size=\"16\\\n", "", 0},
		{"no quotes", cache(`block_size=16`), "", 0},
		{"no comma", cache(`a="1" block_size="16"`), "", 0},
		{"no value after labels", "vllm:cache_config_info{block_size=\"16\"}\n", "", 0},
		{"long line of no interest", "x{a=\"" + strings.Repeat("y", 3*(64<<10)) + "\"} 1\n" + started, "1.79528076534e+09", 0},
		{"long line that should be of interest", started + cache(`block_size="16"`) + cache(`b="`+strings.Repeat("y", 2*(64<<10))+`",block_size="8"`), "1.79528076534e+09", 0},
		{"long start", started + "process_start_time_seconds " + strings.Repeat(" ", 2*(64<<10)) + "6\n", "", 0},
		{"empty", "", "", 0},
		{"bytes", "\x00\xff\n\n\n" + started, "1.79528076534e+09", 0},
	} {
		got, err := ReadMetrics([]byte(row.text), "")
		if err != nil || got.Incarnation != row.incarnation || got.BlockSize != row.block {
			t.Errorf("%s: got %q, block %d, error %v, want %q, block %d", row.name, got.Incarnation, got.BlockSize, err, row.incarnation, row.block)
		}
	}
}

func TestReadMetrics_ATextThatBreaksOffSaysNothing(t *testing.T) {
	const started = "process_start_time_seconds 1.79528076534e+09\n"
	for name, text := range map[string]string{
		"in a line":      started[:len(started)-1],
		"in a long line": started + strings.Repeat("x", 64<<10),
	} {
		if got, err := ReadMetrics([]byte(text), ""); !errors.Is(err, io.ErrUnexpectedEOF) || got != (Metrics{}) {
			t.Errorf("%s: got %+v, %v, want that it breaks off", name, got, err)
		}
	}
}

func TestReadMetrics_PrefixCaching(t *testing.T) {
	cache := func(labels string) string { return "vllm:cache_config_info{" + labels + "} 1\n" }
	for text, want := range map[string]Finding{
		"":                                     Unknown,
		cache(`block_size="16"`):               Unknown,
		cache(`enable_prefix_caching="None"`):  Unknown,
		cache(`enable_prefix_caching="True"`):  Yes,
		cache(`enable_prefix_caching="False"`): No,
		recordedMetrics(t):                     Yes,
		cache(`enable_prefix_caching="False",engine="0"`) + cache(`enable_prefix_caching="True",engine="1"`): No,
		cache(`enable_prefix_caching="True",engine="0"`) + cache(`enable_prefix_caching="False",engine="1"`): No,
	} {
		if got, err := ReadMetrics([]byte(text), ""); err != nil || got.Caching != want {
			t.Errorf("%.100s: got %v, error %v, want %v", text, got.Caching, err, want)
		}
	}
	two := cache(`enable_prefix_caching="True",engine="0"`) + cache(`enable_prefix_caching="False",engine="1"`)
	if got, err := ReadMetrics([]byte(two), "0"); err != nil || got.Caching != Yes {
		t.Errorf("of the rank alone: got %v, error %v", got.Caching, err)
	}
}

// FuzzReadMetrics holds the reader to regular expressions, which read whole samples
// of the usual form and nothing else.
func FuzzReadMetrics(f *testing.F) {
	start := regexp.MustCompile(`^process_start_time_seconds(?:[ \t]*\{[^{}\\"]*(?:"[^"\\]*"[^{}\\"]*)*\})?[ \t]+(\S+)(?:[ \t]+\S+)?[ \t]*$`)
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := ReadMetrics(raw, "")
		if err != nil {
			if len(raw) == 0 || raw[len(raw)-1] == '\n' {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if got.Incarnation != "" {
			seconds, err := strconv.ParseFloat(got.Incarnation, 64)
			if err != nil || seconds <= 0 || !bytes.Contains(raw, []byte(got.Incarnation)) {
				t.Fatalf("%q: start %q", raw, got.Incarnation)
			}
		}
		if got.BlockSize != 0 && !bytes.Contains(raw, []byte(`"`+strconv.Itoa(got.BlockSize)+`"`)) {
			t.Fatalf("%q: block size %d", raw, got.BlockSize)
		}
		alone, err := ReadMetrics(raw, "0")
		if all := got.Use; err != nil || alone.Incarnation != got.Incarnation || alone.BlockSize != got.BlockSize ||
			alone.Use.Running > all.Running || alone.Use.Waiting > all.Waiting || alone.Use.Usage > all.Usage || alone.Use.KVTokens > all.KVTokens ||
			alone.Use.Running < 0 || alone.Use.Waiting < 0 || alone.Use.KVTokens < 0 || !(all.Usage <= 1) || all.Running > MaxTold || all.KVTokens > maxTokens {
			t.Fatalf("%q: all %+v, rank 0 alone %+v, %v", raw, got, alone, err)
		}
		for line := range bytes.SplitSeq(raw, []byte("\n")) {
			found := start.FindSubmatch(bytes.TrimRight(line, "\r"))
			if found != nil && got.Incarnation != "" && got.Incarnation != string(found[1]) {
				t.Fatalf("%q: start %q beside %q", raw, got.Incarnation, found[1])
			}
		}
	})
}
