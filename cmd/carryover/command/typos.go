package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"carryover/server/suggest"
)

// FlagError adds a suggestion to the error of an unknown flag.
func FlagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return &UsageError{Err: err}
	}
	word := unknown.GetSpecifiedShortnames() // "-port" is read as -p -o -r -t
	if word == "" {
		word = unknown.GetSpecifiedName()
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return &UsageError{Err: fmt.Errorf("%w%s", err, suggest.DidYouMean(word, names, func(name string) string { return "--" + name }))}
}

// Meant returns a question that ends a message about a word, "" if no candidate is similar.
func Meant(word string, candidates []string) string {
	return suggest.DidYouMean(word, candidates, func(name string) string { return name })
}

// unknownCommand is the error of a word that is no command.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	see := "; see "
	question := Meant(word, names)
	if question != "" {
		see = question + " See "
	}
	return &UsageError{Err: fmt.Errorf("unknown command or argument %q%s%s --help", word, see, cmd.CommandPath())}
}
