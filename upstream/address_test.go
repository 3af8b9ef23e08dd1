package upstream_test

import (
	"testing"

	"carryover/upstream"
)

func TestParseBaseURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://a":                 "http://a",
		"HTTP://A.Example:8100/":   "http://a.example:8100",
		"https://[::1]:8100":       "https://[::1]:8100",
		"http://a:":                "",
		"http://a:0":               "",
		"http://a:65536":           "",
		"http://a:8100/v1":         "",
		"http://a?":                "",
		"http://a#":                "",
		"http://u@a":               "",
		"http://":                  "",
		"http:a":                   "",
		"a:8100":                   "",
		"ftp://a":                  "",
		"unix:///run/vllm.sock":    "",
		"http://a b":               "",
		"http://a,http://b":        "",
		"http://[fe80::1%25eth0]":  "",
		"http://10.0.0.1:8100\r\n": "",
	} {
		got := ""
		if u, err := upstream.ParseBaseURL(raw); err == nil {
			got = u.String()
		}
		if got != want {
			t.Errorf("ParseBaseURL(%q) = %q, want %q", raw, got, want)
		}
	}
}
