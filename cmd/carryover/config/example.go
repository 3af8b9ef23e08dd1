package config

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"carryover/upstream"
)

// ExampleRole names the flags of vLLM's disagg_proxy_multiturn.py for one role. Each flag also has a plural spelling.
type ExampleRole struct {
	Key          string // key of the setting
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

// addExampleFlags gives both spellings one value, so that the later one wins, as with one dest in argparse.
func addExampleFlags(cmd *cobra.Command, flags *Flags, r ExampleRole) {
	hosts := &flagText{kind: "hosts", nargs: true}
	ports := &flagText{kind: "ports", nargs: true}
	flags.lists[r.Hosts], flags.lists[r.Ports] = hosts, ports
	for _, plural := range []string{"", "s"} {
		cmd.Flags().Var(hosts, r.Hosts+plural, fmt.Sprintf("hosts of %s instances, separated by spaces; also --%ss (default localhost)", r.Key, r.Hosts))
		cmd.Flags().Var(ports, r.Ports+plural, fmt.Sprintf("their ports; also --%ss (default %s)", r.Ports, r.DefaultPort))
	}
}

// applyExample turns hosts and ports into instances. A missing list has one default value.
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
	for i, host := range hostList {
		// JoinHostPort puts brackets around an IPv6 address; the example does not.
		hostList[i] = "http://" + net.JoinHostPort(unbracket(host), portList[i])
	}
	*l.cfg.Instances(r.Key) = instancesAt(hostList...)
	l.own(r.Key, origin)
}

func unbracket(host string) string { return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]") }

// ExpandLists rewrites the list flags of vLLM's example (argparse: nargs='+') for a parser with one value per flag: "--prefiller-host A B"
// becomes the one argument "--prefiller-host=A B".
//
// As in argparse, a list ends before the next flag, and "--flag=A" has exactly the value A. Unlike in argparse, the first command ends a
// list, too, unless it is the list's only value: a host may be called "serve".
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

func takesConfig(word string) bool { return word == "serve" || word == "check-config" }

// looksLikeFlag follows argparse: "-1" is a number and "-" a value.
func looksLikeFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && (arg[1] < '0' || arg[1] > '9')
}
