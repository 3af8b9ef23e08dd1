package e2e

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
)

// TestConnectorsPage_CommandsAreAccepted has a shell read each command of docs/connectors.md, and check-config what it reads.
func TestConnectorsPage_CommandsAreAccepted(t *testing.T) {
	page, err := os.ReadFile("../../../docs/connectors.md")
	noError(t, err)
	var shown []string
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "\ncarryover ") {
			continue
		}
		words, err := exec.CommandContext(t.Context(), "sh", "-c", `carryover() { printf '%s\0' "$@"; }`+block).Output()
		noError(t, err)
		args := strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")
		if _, err := configtest.LoadFiles(t, args); err != nil {
			t.Errorf("%s\nis refused: %v", block, err)
		}
		if at := slices.Index(args, "--connector"); at >= 0 {
			shown = append(shown, args[at+1])
		}
	}
	for _, name := range config.Connectors()[1:] { // docs/getting-started.md has NIXL
		if !slices.Contains(shown, name) {
			t.Errorf("docs/connectors.md has no command with --connector %s", name)
		}
		if !strings.Contains(string(page), "\n| `"+name+"` |") {
			t.Errorf("docs/connectors.md has no row of %s in its table", name)
		}
	}
}
