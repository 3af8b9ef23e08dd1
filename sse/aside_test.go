package sse

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// steps relays what is read step by step and returns what was written by the end of each.
func steps(cfg Config, reads ...string) (written []string, r *Relay, err error) {
	var out strings.Builder
	var steps []func() (string, error)
	for i, text := range reads {
		steps = append(steps, func() (string, error) {
			if i > 0 {
				written = append(written, out.String())
				out.Reset()
			}
			return text, nil
		})
	}
	steps = append(steps, func() (string, error) {
		written = append(written, out.String())
		out.Reset()
		return "", io.EOF
	})
	if cfg.Observe == nil {
		cfg.Observe = func(e Event) Verdict { return verdictOf(e.Data) }
	}
	r = New(&out, nil, cfg)
	err = r.Run(script(steps...))
	return append(written, out.String()), r, err
}

func TestAside_WhatHasNoDataGoesOutWhenItMay(t *testing.T) {
	long := ": " + strings.Repeat("x", 60)
	for name, tc := range map[string]struct {
		reads string // with a stroke between two
		want  string // by read, and at the end
	}{
		"before the first event":           {": ping\n\n|\n|id: 1\n\n|: a\r\n|data: a\n\n", ": ping\n\n|\n|id: 1\n\n|: a\r\n|data: a\n\n|"},
		"behind the first, which is held":  {"data: hold\n\n|: ping\n\n|id: 1\n\n|data: a\n\n", "|: ping\n\n||data: hold\n\nid: 1\n\ndata: a\n\n|"},
		"behind the first, which stops":    {": ping\n\n|data: hold\n\n|: ping\n\ndata: stop\n\n", ": ping\n\n||: ping\n\n|"},
		"behind one that waits":            {"data: await\n\n|: ping\n\n|data: await\n\n|data: drop\n\n|data: hold\n\n", "|: ping\n\n||data: await\n\ndata: await\n\n||data: hold\n\n"},
		"behind one that waits, then held": {"data: await\r\n\r\n|data: hold\n\n|data: a\n\n", "|data: await\r\n\r\n|data: hold\n\ndata: a\n\n|"},
		"behind an event, without a blank": {"data: a\n\n|: ping\n|: pi|ng\r|\n|data: b\n\n", "data: a\n\n|: ping\n||: ping\r|\n|data: b\n\n|"},
		"behind one that is held":          {"data: a\n\n|data: hold\n\n|: ping\n\n|\r|\n|id: 1\n\n|data: b\n\n", "data: a\n\n||: ping\n\n|\r|\n||data: hold\n\nid: 1\n\ndata: b\n\n|"},
		"behind one that is superseded":    {"data: a\n\n|data: hold\n\n|: ping\n\n|data: super\n\n", "data: a\n\n||: ping\n\n|data: super\n\n|"},
		"behind one that is dropped":       {"data: a\n\n|data: drop\n\n: ping\n\n|data: b\n\n", "data: a\n\n|: ping\n\n|data: b\n\n|"},
		"with a byte order mark":           {"\xef\xbb\xbf: ping\n|data: a\n\n", "\xef\xbb\xbf: ping\n|data: a\n\n|"},
		"behind a byte order mark":         {"\xef\xbb\xbfdata: hold\n\n|: ping\n|data: a\n\n", "|\xef\xbb\xbf: ping\n|data: hold\n\ndata: a\n\n|"},
		"too long to be held":              {long + "|data: x\n\n|data: a\n\n", long + "|data: x\n\n|data: a\n\n|"},
		"long, behind one that is held":    {"data: a\n\n|data: hold\n\n|" + long + "\n", "data: a\n\n||data: hold\n\n" + long + "\n|"},
		"long, in two":                     {"data: a\n\n|data: hold\n\n|" + long + "|y\n\n", "data: a\n\n||data: hold\n\n" + long + "|y\n\n|"},
	} {
		t.Run(name, func(t *testing.T) {
			got, r, err := steps(Config{MaxEvent: 50}, strings.Split(tc.reads, "|")...)
			if err != nil && !errors.Is(err, ErrStopped) {
				t.Fatal(err)
			}
			want := strings.Split(tc.want, "|")
			if stopped := errors.Is(err, ErrStopped); stopped { // no read follows
				got = append(got, slices.Repeat([]string{""}, len(want)-len(got))...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("written\n got %q\nwant %q", got, tc.want)
			}
			if s := r.Stats(); s.Oversize != 0 || s.MidEvent {
				t.Errorf("got %+v, want no event that is too long or in the midst", s)
			}
		})
	}
}

// A comment that came long before the rest of its block says nothing of the age of the event.
func TestAside_CommentsBeginNoEvent(t *testing.T) {
	var log []string
	_, _, err := steps(Config{
		Begin: func() { log = append(log, "begin") },
		Observe: func(e Event) Verdict {
			log = append(log, fmt.Sprintf("%s %t", e.Data, e.Split))
			return Forward
		},
	}, ": ping\n", ": pi", "ng\n", "\n", "data: a\n\n", ": ping\nda", "ta: b\n\n")
	if want := []string{"a false", "begin", "b true"}; err != nil || !slices.Equal(log, want) {
		t.Errorf("got %q, %v; want %q", log, err, want)
	}
}

// Behind part of a comment no event may be added, and behind all of it one may.
func TestAside_PartOfALongCommentIsMidEvent(t *testing.T) {
	for _, tc := range []struct {
		reads []string
		mid   bool
	}{
		{[]string{"data: a\n\n", ": " + strings.Repeat("x", 60)}, true},
		{[]string{"data: a\n\n", ": " + strings.Repeat("x", 60), "x", "x"}, true},
		{[]string{"data: a\n\n", ": " + strings.Repeat("x", 60), "x\n"}, false},
	} {
		_, r, err := steps(Config{MaxEvent: 50}, tc.reads...)
		if err != nil || r.Stats().MidEvent != tc.mid {
			t.Errorf("%q: got mid-event %t, %v; want %t", tc.reads, r.Stats().MidEvent, err, tc.mid)
		}
	}
}
