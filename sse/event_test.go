package sse

import (
	"strings"
	"testing"
	"time"
)

// The names of the first rows are those of the web-platform-tests under eventsource/.
func TestRelay_ObservesWhatABrowserDispatches(t *testing.T) {
	for _, tc := range []struct {
		input, want string // each event with a stroke behind it
	}{
		{"data:\n\ndata\ndata\n\ndata:test\n\n", "|\n|test|"},                                                    // format-field-data
		{"data:\n\ndata\ndata\n\ndata:test", "|\n|"},                                                             // format-field-data, unfinished
		{"event: \ndata:data\n\n", "data|"},                                                                      // format-field-event-empty
		{"event:test\ndata:x\n\ndata:x\n\n", "x|x|"},                                                             // format-field-event
		{"data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisacommentyay\ndata:test\n\n", "test\n\ntest|"}, // format-field-unknown
		{"data:\x00\n\n\n\n", "\x00|"},                                                                           // format-null-character
		{"data:ok…\n\n", "ok…|"},                                                                                 // format-utf-8
		{"\xef\xbb\xbfdata:1\n\n\xef\xbb\xbfdata:2\n\ndata:3\n\n", "1|3|"},                                       // format-bom
		{"\xef\xbb\xbf\xef\xbb\xbfdata:1\n\ndata:2\n\ndata:3\n\n", "2|3|"},                                       // format-bom-2
		{"data:1\r:\x00\n:\r\ndata:2\n:" + strings.Repeat("x", 2000) + "\rdata:3\n:data:fail\r:" + strings.Repeat("x", 2000) + "\ndata:4\n\n", "1\n2\n3\n4|"}, // format-comments
		{"retry:1000\ndata:test1\n\nid:test\ndata:test2", "test1|"},                                                                                     // format-data-before-final-empty-line
		{"data:\x00\ndata:  2\rData:1\ndata\x00:2\ndata:1\r\x00data:4\nda-ta:3\rdata_5\ndata:3\rdata:\r\n data:32\ndata:4\n\n", "\x00\n 2\n1\n3\n\n4|"}, // format-field-parsing
		{"data:\ttest\rdata: \ndata:test\n\n", "\ttest\n\ntest|"},                                                                                       // format-leading-space
		{"data:test\r\ndata\ndata:test\r\n\r", "test\n\ntest|"},                                                                                         // format-newlines
		{"id: 1\ndata:1\n\nid: 2\x00\ndata:2\n\n", "1|2|"},                                                                                              // format-field-id
		{"retry:1000x\ndata:x\n\n", "x|"},                                                                                                               // format-field-retry-bogus
		{"data:msg\ndata:msg\n\n:\ndata:end\n\n", "msg\nmsg|end|"},                                                                                      // event-data

		{"", ""},                                  // empty stream
		{"data:\u00a0x\n\n", "\u00a0x|"},          // no-break space is not the space
		{"data:  x\n\n", " x|"},                   // only one space is stripped
		{": ping\n\n: ping\r\n\r\n", ""},          // comment only
		{"\n\n\r\r\r\n\r\n", ""},                  // empty events
		{"data:a\r\rdata:b\r\r", "a|b|"},          // lone CR only
		{"data:a\n\rdata:b\n\r", "a|b|"},          // LF then CR are two line ends
		{"data:a\r\ndata:b\r\n\r\n", "a\nb|"},     // CRLF is one line end
		{"data:a\r\r\ndata:b\n\n", "a|b|"},        // blank line is CR, LF belongs to it
		{"\xef\xbb\xbf\ndata:x\n\n", "x|"},        // byte order mark, then a blank line
		{"\xef\xbbdata:x\n\ndata:y\n\n", "y|"},    // half a byte order mark
		{"\xef\xbb", ""},                          // nothing but part of a byte order mark
		{"data: \U0001f600é\n\n", "\U0001f600é|"}, // multi-byte text
		{"data:a\n\ndata:b\n\ndata:c\n", "a|b|"},  // two events and a half
		{"data: [DONE]", ""},                      // [DONE] without line end
		{"data: [DONE]\n", ""},                    // [DONE] with one line end
		{"data: [DONE]\n\n", "[DONE]|"},           // [DONE] with two line ends
		{strings.Repeat("data:x\n", 10000) + "\n", strings.TrimSuffix(strings.Repeat("x\n", 10000), "\n") + "|"}, // ten thousand data lines
	} {
		for name, src := range readings(tc.input, nil) {
			got := ""
			out, _, err := run(src, Config{Observe: func(e Event) Verdict {
				got += string(e.Data) + "|"
				return Forward
			}})
			if err != nil || out != tc.input || got != tc.want {
				t.Errorf("%s: %v, relayed %.200q, events of %.200q:\n got %.200q\nwant %.200q", name, err, out, tc.input, got, tc.want)
			}
		}
	}
}

func TestRelay_ManyEmptyLines(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n"} {
		input := strings.Repeat(end, 1<<17)
		if out, _, err := run(strings.NewReader(input), Config{}); err != nil || out != input {
			t.Errorf("line end %q: relayed %d bytes, error %v; want %d and nil", end, len(out), err, len(input))
		}
	}
}

// A search to the end of the buffer for every line would make a stream with CR line ends quadratic: 44 s for 2 MiB of
// lines, measured.
func TestLineEnd_LooksAheadOneWindowOnly(t *testing.T) {
	fastest := func(b []byte) time.Duration {
		best := time.Hour
		for range 50 {
			start := time.Now()
			for range 20 {
				if end := lineEnd(b); end != 1 {
					t.Fatalf("lineEnd = %d, want 1", end)
				}
			}
			best = min(best, time.Since(start))
		}
		return best
	}
	line := []byte("x\r" + strings.Repeat("x", 4<<20))
	short, long := fastest(line[:1024]), fastest(line)
	if long > 50*short {
		t.Errorf("with 4 MiB behind the line: %v, with 1 KiB: %v; want about the same", long, short)
	}
}
