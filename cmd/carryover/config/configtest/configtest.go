// Package configtest reads configurations as the program does, for tests of its parts.
package configtest

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/config"
)

// Load returns the configuration of a command line, whose words spaces separate, and of variables in the form of os.Environ.
func Load(t *testing.T, commandLine string, env ...string) (config.Config, error) {
	t.Helper()
	return load(t, strings.Fields(commandLine), env)
}

// LoadFiles is Load in testdata/config, the folder of configuration files, for arguments that may hold spaces.
func LoadFiles(t *testing.T, args []string, env ...string) (config.Config, error) {
	t.Helper()
	t.Chdir(folder(t))
	for _, name := range []string{"secret-file.txt", "secret-short.txt", "redis-password.txt", "accepted-empty.yaml"} {
		if err := os.Chmod(name, 0o644); err != nil { // git leaves them writable for the group where the umask does
			t.Fatal(err)
		}
	}
	return load(t, args, env)
}

// folder looks for testdata/config beside go.mod, from where the test runs upwards.
func folder(t *testing.T) string {
	t.Helper()
	at, err := os.Getwd()
	for ; err == nil && at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, missing := os.Stat(filepath.Join(at, "go.mod")); missing == nil {
			return filepath.Join(at, "testdata", "config")
		}
	}
	t.Fatalf("no go.mod above %s (%v)", at, err)
	return ""
}

func load(t *testing.T, args, env []string) (config.Config, error) {
	t.Helper()
	cmd := &cobra.Command{}
	cmd.SetOut(io.Discard)
	flags := config.AddFlags(cmd)
	if err := cmd.ParseFlags(config.ExpandLists(args)); err != nil {
		t.Fatal(err)
	}
	return config.NewLoader().Load(config.Environment(env), flags)
}
