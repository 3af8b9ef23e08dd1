package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

const (
	configFlag     = "config"
	configVariable = "CARRYOVER_CONFIG"
)

// flagText is the text that the command line has for one setting, not yet parsed. An error from Set would end the search for further
// faults at the first bad value. It implements pflag.Value.
type flagText struct {
	kind  string
	text  string
	list  bool // a repeated flag adds to the list; otherwise the last one wins
	nargs bool // a list flag of the example; it has at least one value, even if a later flag replaces it
	given bool
}

// String returns the default in help texts and, after parsing, the given text.
func (f *flagText) String() string { return f.text }

// Type returns the word that stands for the value in help texts; pflag knows "bool".
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

// configFlags are the flags of a command that takes a configuration.
type configFlags struct {
	file     flagText
	settings map[string]*flagText // by flag
	lists    map[string]*flagText // of vLLM's example, by singular flag
}

func addConfigFlags(cmd *cobra.Command) *configFlags {
	flags := &configFlags{
		file:     flagText{kind: "file"},
		settings: map[string]*flagText{},
		lists:    map[string]*flagText{},
	}
	addHelpAll(cmd)
	cmd.Flags().Var(&flags.file, configFlag, "configuration file, YAML (or "+configVariable+")")
	cfg := defaultConfig()
	for _, s := range settings(&cfg) {
		if s.flag == "" {
			continue
		}
		text := &flagText{kind: valueKind(s.to), text: formatValue(s.to), list: isList(s.to)}
		flags.settings[s.flag] = text
		f := cmd.Flags().VarPF(text, s.flag, "", s.usage())
		if text.kind == "bool" {
			f.NoOptDefVal = "true"
		}
		completeValues(cmd, s.flag, s.oneOf)
	}
	for _, r := range exampleRoles() {
		addExampleFlags(cmd, flags, r)
	}
	return flags
}

func isList(to any) bool {
	switch to.(type) {
	case *[]string, *[]InstanceConfig:
		return true
	default:
		return false
	}
}

func (l *loader) applyFlags(flags *configFlags) {
	for _, s := range l.rows {
		if text := flags.settings[s.flag]; text != nil && text.given {
			l.set(s, text.text, "--"+s.flag)
		}
	}
	for _, r := range exampleRoles() {
		l.applyExample(r, flags)
	}
}
