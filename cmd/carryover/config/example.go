package config

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"carryover/upstream"
)

// ExampleRole names the flags that vLLM's example disagg_proxy_multiturn.py has for the instances of one role. Each
// flag also has a plural spelling with the same meaning.
type ExampleRole struct {
	Key          string // key of the setting that the flags fill
	Hosts, Ports string // flags
	DefaultPort  string
}

// ExampleRoles returns the flags of both roles.
func ExampleRoles() []ExampleRole {
	return []ExampleRole{
		{Key: RolePrefill, Hosts: "prefiller-host", Ports: "prefiller-port", DefaultPort: "8100"},
		{Key: RoleDecode, Hosts: "decoder-host", Ports: "decoder-port", DefaultPort: "8200"},
	}
}

// addExampleFlags gives both spellings of a flag one value, so that the later one replaces the earlier, as with one
// dest in argparse.
func addExampleFlags(cmd *cobra.Command, flags *Flags, r ExampleRole) {
	hosts := &flagText{kind: "hosts", nargs: true}
	ports := &flagText{kind: "ports", nargs: true}
	flags.lists[r.Hosts], flags.lists[r.Ports] = hosts, ports
	for _, plural := range []string{"", "s"} {
		cmd.Flags().Var(hosts, r.Hosts+plural, fmt.Sprintf("hosts of %s instances, separated by spaces; also --%ss (default localhost)", r.Key, r.Hosts))
		cmd.Flags().Var(ports, r.Ports+plural, fmt.Sprintf("their ports; also --%ss (default %s)", r.Ports, r.DefaultPort))
	}
}

// applyExample turns the host and port lists into instances. A missing list has its default of one value.
func (l *Loader) applyExample(r ExampleRole, flags *Flags) {
	hosts, ports := flags.lists[r.Hosts], flags.lists[r.Ports]
	if !hosts.given && !ports.given {
		return
	}
	origin := "--" + r.Hosts
	if !hosts.given {
		origin = "--" + r.Ports
	}
	hostList, portList := []string{"localhost"}, []string{r.DefaultPort}
	if hosts.given {
		hostList = strings.Fields(hosts.text)
	}
	if ports.given {
		portList = strings.Fields(ports.text)
	}
	var faults []error
	refuse := func(flag, value, want string) {
		faults = append(faults, Fault{Key: r.Key, Value: Quoted(value), Origin: "--" + flag, Want: want})
	}
	if urls := flags.settings[r.Key]; urls.given {
		refuse(r.Key, urls.text, fmt.Sprintf("either URLs or --%s and --%s, not both", r.Hosts, r.Ports))
	} else if len(hostList) != len(portList) {
		refuse(r.Hosts, strings.Join(hostList, " "), fmt.Sprintf("as many hosts as ports, got %d hosts and %d ports", len(hostList), len(portList)))
	}
	for _, host := range hostList {
		if !upstream.IsHost(unbracket(host)) {
			refuse(r.Hosts, host, "a host name or an IP address")
		}
	}
	for _, port := range portList {
		if !upstream.IsPort(port) {
			refuse(r.Ports, port, "a port from 1 to 65535")
		}
	}
	if len(faults) > 0 {
		l.faults = append(l.faults, faults...)
		return
	}
	instances := make([]InstanceConfig, len(hostList))
	for i, host := range hostList {
		// JoinHostPort puts brackets around an IPv6 address; the example does not.
		instances[i].URL = "http://" + net.JoinHostPort(unbracket(host), portList[i])
	}
	*l.cfg.Instances(r.Key) = instances
	l.own(r.Key, origin)
}

// unbracket returns a host without the brackets of an IPv6 address.
func unbracket(host string) string { return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]") }

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
