// Package migrate is the command that translates the command line of another proxy: vLLM's example, production-stack's router.
// It translates what it knows and lists what it does not.
package migrate

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/config"
)

// NewCommand translates the command line of another proxy. Its flags are not parsed by cobra: they are another program's.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate-flags -- FLAGS",
		Short: "Translate the flags of production-stack's router, or of an example proxy, into Carryover's",
		Long: "Print the carryover command line that does what another proxy does with these flags, ready to paste, with comments for\n" +
			"what has no equivalent. It knows the router of vLLM's production-stack, its open pull requests for thresholds and for LMCache\n" +
			"included, and the proxies that vLLM and LMCache ship as examples. Comments list the flags that it does not know.",
		DisableFlagParsing: true,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
		if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
			return cmd.Help()
		}
		return migrate(args, cmd.OutOrStdout())
	}
	return cmd
}

// migrate prints the command line that stands for args, or returns why there is none.
func migrate(args []string, out io.Writer) error {
	from, given, unknown, err := parseTheirs(args)
	if err != nil {
		return err
	}
	m := &migration{}
	for _, words := range unknown {
		m.notes = append(m.notes, "NOT TRANSLATED: "+words)
	}
	for _, f := range from.flags {
		if given.has(f.name) && f.ours == "" {
			m.note(f.name, f.remark)
		}
	}
	from.convert(m, given)
	if len(m.faults) > 0 {
		return errors.Join(m.faults...)
	}
	if err := m.check(); err != nil {
		return err
	}
	_, err = io.WriteString(out, m.text(from.title))
	return err
}

// migration is a command line of Carryover under construction.
type migration struct {
	flags  [][2]string // name and value
	notes  []string
	faults []error
}

func (m *migration) flag(name, value string) { m.flags = append(m.flags, [2]string{name, value}) }

// note explains what became of a flag of theirs.
func (m *migration) note(theirs, text string) { m.notes = append(m.notes, "--"+theirs+": "+text) }

func (m *migration) fail(theirs, want string) {
	m.faults = append(m.faults, fmt.Errorf("--%s: want %s", theirs, want))
}

// check reads the command line as serve would, without an environment.
func (m *migration) check() error {
	cmd := &cobra.Command{}
	flags := config.AddFlags(cmd)
	var args []string
	for _, f := range m.flags {
		args = append(args, "--"+f[0]+"="+f[1])
	}
	if err := cmd.ParseFlags(args); err != nil {
		return fmt.Errorf("translated, but refused: %w", err)
	}
	if _, err := config.Load(nil, flags); err != nil {
		return fmt.Errorf("translated, but refused:\n%s", err.Error()) // without %w, which would make it an error of this command's usage
	}
	return nil
}

// text is what a shell takes: comments, and then one command with a flag on each line.
func (m *migration) text(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# From the flags of %s:\n", title)
	for _, note := range m.notes {
		fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(note, "\n", " ")) // values of theirs stay in the comment
	}
	b.WriteString("carryover")
	for _, f := range m.flags {
		fmt.Fprintf(&b, " \\\n  --%s %s", f[0], shellQuoted(f[1]))
	}
	b.WriteString("\n")
	return b.String()
}

// shellQuoted is text as one word of a POSIX shell.
func shellQuoted(text string) string {
	if text != "" && strings.Trim(text, config.Letters+config.Digits+"-_./:,@%+=") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
