package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"
)

// exampleRole names the flags that vLLM's example disagg_proxy_multiturn.py has for the instances of one role. Each
// flag also has a plural spelling with the same meaning.
type exampleRole struct {
	key          string // key of the setting that the flags fill
	hosts, ports string // flags
	defaultPort  string
}

func exampleRoles() []exampleRole {
	return []exampleRole{
		{key: rolePrefill, hosts: "prefiller-host", ports: "prefiller-port", defaultPort: "8100"},
		{key: roleDecode, hosts: "decoder-host", ports: "decoder-port", defaultPort: "8200"},
	}
}

// addExampleFlags gives both spellings of a flag one value, so that the later one replaces the earlier, as with one
// dest in argparse.
func addExampleFlags(cmd *cobra.Command, flags *configFlags, r exampleRole) {
	hosts := &flagText{kind: "hosts", nargs: true}
	ports := &flagText{kind: "ports", nargs: true}
	flags.lists[r.hosts], flags.lists[r.ports] = hosts, ports
	for _, plural := range []string{"", "s"} {
		cmd.Flags().Var(hosts, r.hosts+plural, fmt.Sprintf("hosts of %s instances, separated by spaces; also --%ss (default localhost)", r.key, r.hosts))
		cmd.Flags().Var(ports, r.ports+plural, fmt.Sprintf("their ports; also --%ss (default %s)", r.ports, r.defaultPort))
	}
}

// applyExample turns the host and port lists into instances. A missing list has its default of one value.
func (l *loader) applyExample(r exampleRole, flags *configFlags) {
	hosts, ports := flags.lists[r.hosts], flags.lists[r.ports]
	if !hosts.given && !ports.given {
		return
	}
	origin := "--" + r.hosts
	if !hosts.given {
		origin = "--" + r.ports
	}
	hostList, portList := []string{"localhost"}, []string{r.defaultPort}
	if hosts.given {
		hostList = strings.Fields(hosts.text)
	}
	if ports.given {
		portList = strings.Fields(ports.text)
	}
	var faults []error
	refuse := func(flag, value, want string) {
		faults = append(faults, fault{key: r.key, value: quoted(value), origin: "--" + flag, want: want})
	}
	if urls := flags.settings[r.key]; urls.given {
		refuse(r.key, urls.text, fmt.Sprintf("either URLs or --%s and --%s, not both", r.hosts, r.ports))
	} else if len(hostList) != len(portList) {
		refuse(r.hosts, strings.Join(hostList, " "), fmt.Sprintf("as many hosts as ports, got %d hosts and %d ports", len(hostList), len(portList)))
	}
	for _, host := range hostList {
		if !isHost(unbracket(host)) {
			refuse(r.hosts, host, "a host name or an IP address")
		}
	}
	for _, port := range portList {
		if !isPort(port) {
			refuse(r.ports, port, "a port from 1 to 65535")
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
	*l.cfg.instances(r.key) = instances
	l.own(r.key, origin)
}

func unbracket(host string) string { return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]") }
