package cli

import (
	"runtime/debug"
	"strings"
	"testing"

	"carryover/cmd/carryover/command"
)

func TestRevision_TellsAModifiedTree(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "c0ffee"}
	for _, tc := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{commit, {Key: "vcs.modified", Value: "false"}}, "c0ffee"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, commit}, "c0ffee (modified)"},
		{[]debug.BuildSetting{{Key: "GOOS", Value: "linux"}}, ""},
	} {
		if got := command.Revision(tc.settings); got != tc.want {
			t.Errorf("revision(%v) = %q, want %q", tc.settings, got, tc.want)
		}
	}
}

// Tests are built without a revision, as the image is.
func TestVersion_LeavesOutWhatIsNotKnown(t *testing.T) {
	if said := command.VersionText(); !strings.HasPrefix(said, "carryover dev\ngo") || strings.Count(said, "\n") != 2 || strings.Contains(said, "revision") {
		t.Errorf("got %q, want the version and Go's alone", said)
	}
}
