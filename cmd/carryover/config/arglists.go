package config

import (
	"slices"
	"strings"
)

// ExpandLists rewrites the list flags of vLLM's example, which argparse declares with nargs='+', for a parser that knows
// only one value per flag: "--prefiller-host A B" becomes "--prefiller-host=A B", one argument. It leaves other arguments unchanged.
//
// As in argparse, a list ends before the next flag, and "--flag=A" has exactly the value A. Unlike argparse, a command may follow a
// list: a word that names a command ends the list. It does not if a command came before, or if the word would be the list's only
// value, so that a host may be called "serve".
func ExpandLists(args []string) []string {
	out := make([]string, 0, len(args))
	commandSeen := false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if !isListFlag(arg) {
			commandSeen = commandSeen || takesConfig(arg)
			out = append(out, arg)
			continue
		}
		end := i + 1
		for end < len(args) && !looksLikeFlag(args[end]) {
			if end > i+1 && !commandSeen && takesConfig(args[end]) {
				break
			}
			end++
		}
		out = append(out, arg+"="+strings.Join(args[i+1:end], " "))
		i = end - 1
	}
	return out
}

func isListFlag(arg string) bool {
	name, ok := strings.CutPrefix(arg, "--")
	return ok && slices.ContainsFunc(ExampleRoles(), func(r ExampleRole) bool {
		return slices.Contains([]string{r.Hosts, r.Hosts + "s", r.Ports, r.Ports + "s"}, name)
	})
}

// takesConfig reports whether a word is a command that takes the list flags.
func takesConfig(word string) bool { return word == "serve" || word == "check-config" }

// looksLikeFlag follows argparse, for which "-1" is a negative number and "-" a value.
func looksLikeFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && (arg[1] < '0' || arg[1] > '9')
}
