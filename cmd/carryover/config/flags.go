package config

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/command"
)

// The flag and the variable that name the configuration file.
const (
	FileFlag       = "config"
	configVariable = "CARRYOVER_CONFIG"
)

// flagText is the unparsed text of one flag, a pflag.Value. A parse error in Set would hide the faults of later flags.
type flagText struct {
	kind  string
	text  string
	list  bool // a repeated flag adds to the list; otherwise the last one wins
	nargs bool // a list flag of the example: always at least one value, even if a later flag replaces it
	given bool
}

func (f *flagText) String() string { return f.text }

func (f *flagText) Type() string { return f.kind }

// Set accepts any text, except an empty list.
func (f *flagText) Set(text string) error {
	if f.nargs && strings.TrimSpace(text) == "" {
		return errors.New("want at least one value")
	}
	if f.list && f.given {
		text = f.text + "," + text
	}
	f.text, f.given = text, true
	return nil
}

// Flags are the flags of a command with a configuration.
type Flags struct {
	file     flagText
	settings map[string]*flagText // by flag
	lists    map[string]*flagText // of vLLM's example, by singular flag
}

// AddFlags adds the flags of all settings, and --help-all.
func AddFlags(cmd *cobra.Command) *Flags {
	flags := &Flags{
		file:     flagText{kind: "file"},
		settings: map[string]*flagText{},
		lists:    map[string]*flagText{},
	}
	command.AddHelpAll(cmd)
	cmd.Flags().Var(&flags.file, FileFlag, "configuration file, YAML (or "+configVariable+")")
	cfg := Default()
	for _, s := range Settings(&cfg) {
		if s.Flag == "" {
			continue
		}
		_, instances := s.To.(*[]InstanceConfig)
		text := &flagText{kind: valueKind(s.To), text: FormatValue(s.To)}
		text.list = instances || text.kind == "names"
		flags.settings[s.Flag] = text
		f := cmd.Flags().VarPF(text, s.Flag, "", s.Usage())
		if text.kind == "bool" {
			f.NoOptDefVal = "true"
		}
		command.CompleteValues(cmd, s.Flag, s.OneOf)
	}
	for _, r := range ExampleRoles() {
		addExampleFlags(cmd, flags, r)
	}
	return flags
}

func (l *Loader) applyFlags(flags *Flags) {
	for _, s := range l.rows {
		if text := flags.settings[s.Flag]; text != nil && text.given {
			l.set(s, text.text, "--"+s.Flag)
		}
	}
	for _, r := range ExampleRoles() {
		l.applyExample(r, flags)
	}
}
