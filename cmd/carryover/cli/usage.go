package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/doctor"
)

// printUsage lists the settings of a command by section, in the order of the settings table; a command that takes no
// configuration gets its flags as pflag prints them.
func printUsage(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(out, "\nCommands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(out, "  %-14s%s\n", sub.Name(), sub.Short)
			}
		}
	}
	if cmd.Flags().Lookup(config.FileFlag) == nil {
		if flags := cmd.LocalFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(out, "\nFlags:\n%s", flags)
		}
		return nil
	}
	groups := flagGroups()
	all := cmd.Flags().Changed(command.HelpAllFlag)
	if !all {
		groups = fewGroups(groups)
	}
	for _, group := range groups {
		fmt.Fprintf(out, "\n%s:\n", group.title)
		if err := printFlags(out, cmd, group.flags); err != nil {
			return fmt.Errorf("print usage: %w", err)
		}
	}
	if !all {
		fmt.Fprint(out, "\nThese are the settings that most people need; --help-all shows all.\n")
	}
	return nil
}

type flagGroup struct {
	title string
	flags []string
}

// flagGroups gives the flags in the order in which they are shown. The plural spellings of the example's flags are left
// out: they are synonyms.
func flagGroups() []flagGroup {
	groups := []flagGroup{{title: "general", flags: append([]string{config.FileFlag, printFlag, "help", command.HelpAllFlag, versionFlag}, doctor.Flags()...)}}
	cfg := config.Default()
	for _, s := range config.Settings(&cfg) {
		if s.Flag == "" {
			continue
		}
		section := s.Section()
		i := slices.IndexFunc(groups, func(g flagGroup) bool { return g.title == section })
		if i < 0 {
			groups = append(groups, flagGroup{title: section})
			i = len(groups) - 1
		}
		groups[i].flags = append(groups[i].flags, s.Flag)
		for _, r := range config.ExampleRoles() {
			if r.Key == s.Key {
				groups[i].flags = append(groups[i].flags, r.Hosts, r.Ports)
			}
		}
	}
	return groups
}

func printFlags(out io.Writer, cmd *cobra.Command, names []string) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			continue
		}
		left := "--" + name
		if kind := f.Value.Type(); kind != "" && kind != "bool" {
			left += " " + kind
		}
		right := f.Usage
		if f.DefValue != "" && f.DefValue != "false" && !strings.Contains(right, "(default") {
			right += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  %s\t%s\n", left, right)
	}
	return w.Flush()
}

// commonFlags are the settings that most people need.
func commonFlags() []string {
	return []string{
		"host", "port", "admin-listen", "admin-token-file", "prefill", "decode", "connector", "routing-prefill", "routing-decode", "discovery-file",
		"k8s-label-selector", "conversation-sources", "tenant-header", "secret-file", "hand-back", "decoder-kv-ttl", "redis-url", "max-streams",
		"log-format", "log-level",
	}
}

// fewGroups keeps of all settings only those that most people need, and all flags of the command itself.
func fewGroups(groups []flagGroup) []flagGroup {
	few := groups[:1]
	for _, group := range groups[1:] {
		group.flags = slices.DeleteFunc(slices.Clone(group.flags), func(flag string) bool { return !slices.Contains(commonFlags(), flag) })
		if len(group.flags) > 0 {
			few = append(few, group)
		}
	}
	return few
}
