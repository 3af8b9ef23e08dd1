package main

import (
	"runtime/debug"
	"testing"
)

func TestRevision_TellsAModifiedTree(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "c0ffee"}
	for _, tc := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, "unknown"},
		{[]debug.BuildSetting{commit, {Key: "vcs.modified", Value: "false"}}, "c0ffee"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, commit}, "c0ffee (modified)"},
		{[]debug.BuildSetting{{Key: "GOOS", Value: "linux"}}, "unknown"},
	} {
		if got := revision(tc.settings); got != tc.want {
			t.Errorf("revision(%v) = %q, want %q", tc.settings, got, tc.want)
		}
	}
}
