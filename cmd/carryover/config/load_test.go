package config

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// What was set at the start must be set again, by whichever source; what never was may go on as it is.
func TestLoadAgain_RefusesWhatSaysLess(t *testing.T) {
	const both, some = "prefill: [{url: http://p:1}]\ndecode: [{url: http://d:1}]\n", "limits: {max_queue: 5}\n"
	for name, row := range map[string]struct {
		first, next string
		flags, env  string
		refused     string // what the error names, "" for none
	}{
		"the same":                              {first: both, next: both},
		"nothing at all, ever":                  {},
		"less, of what is there by default":     {first: some, next: "limits: {max_queue: 6}\n"},
		"an empty file beside flags":            {first: some, flags: "--prefill http://p:1 --decode http://d:1", refused: "config"},
		"a file that was empty, beside flags":   {flags: "--prefill http://p:1 --decode http://d:1"},
		"another file beside flags":             {first: some, next: "log: {level: debug}\n", flags: "--prefill http://p:1 --decode http://d:1"},
		"an empty file":                         {first: both, refused: "decode"},
		"an empty file, blank":                  {first: both, next: "\n  \n", refused: "decode"},
		"an empty file, comments":               {first: both, next: "# prefill:\n", refused: "decode"},
		"an empty file, null":                   {first: both, next: "~\n", refused: "decode"},
		"no members":                            {first: both, next: "prefill:\ndecode:\n", refused: "decode"},
		"empty lists":                           {first: both, next: "prefill: []\ndecode: []\n", refused: "decode"},
		"no instances":                          {first: both, next: some, refused: "prefill"},
		"one role":                              {first: both, next: "decode: [{url: http://d:1}]\n", refused: "prefill"},
		"a role by a variable":                  {first: both, next: "decode: [{url: http://d:1}]\n", env: "CARRYOVER_PREFILL=http://p:1"},
		"a role that is found from now on":      {first: both, next: "decode: [{url: http://d:1}]\ndiscovery: {prefill_dns: [http://p:1]}\n"},
		"instances for what had none":           {next: both},
		"a role that was found, and is nowhere": {first: "decode: [{url: http://d:1}]\ndiscovery: {prefill_dns: [http://p:1]}\n", next: "decode: [{url: http://d:1}]\n", refused: "prefill"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "carryover.yaml")
			write := func(text string) {
				must(t, os.WriteFile(file, []byte(text), 0o600))
			}
			cmd := &cobra.Command{}
			cmd.SetOut(io.Discard)
			flags := AddFlags(cmd)
			must(t, cmd.ParseFlags(ExpandLists(append([]string{"--config", file}, strings.Fields(row.flags)...))))
			env := Environment(strings.Fields(row.env))
			write(row.first)
			started := NewLoader()
			if _, err := started.Load(env, flags); err != nil {
				t.Fatal(err)
			}
			write(row.next)
			_, err := LoadAgain(started, env, flags)
			if (err != nil) != (row.refused != "") || err != nil && !strings.Contains(err.Error(), row.refused) {
				t.Errorf("got %v, want an error that names %q", err, row.refused)
			}
		})
	}
}
