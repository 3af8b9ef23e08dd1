package migrate

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"

	"carryover/cmd/carryover/config"
)

// exampleFlags are those of vLLM's disagg_proxy_multiturn.py, which carryover takes as they are.
func exampleFlags() (flags []theirFlag) {
	for _, name := range []string{"host", "port"} {
		flags = append(flags, theirFlag{name: name, ours: "the same"})
	}
	for _, r := range config.ExampleRoles() {
		for _, name := range []string{r.Hosts, r.Hosts + "s", r.Ports, r.Ports + "s"} {
			flags = append(flags, theirFlag{name: name, list: true, ours: "the same"})
		}
	}
	return flags
}

func convertExample(m *migration, g theirFlags) {
	m.notes = append(m.notes, "carryover takes these flags as they are, too")
	m.listenAs(g)
	for _, r := range config.ExampleRoles() {
		either := func(name, otherwise string) []string { return g.words(name+"s", g.last(name, otherwise)) }
		m.pairs(r, either(r.Hosts, "localhost"), either(r.Ports, r.DefaultPort))
	}
}

func (m *migration) listenAs(g theirFlags) {
	for _, name := range []string{"host", "port"} {
		if g.has(name) {
			m.flag(name, g.last(name, ""))
		}
	}
}

// pairs adds the instances of a role, hosts and ports one by one.
func (m *migration) pairs(r config.ExampleRole, hosts, ports []string) {
	if len(hosts) != len(ports) {
		m.fail(r.Hosts, "as many hosts as ports, got "+strconv.Itoa(len(hosts))+" hosts and "+strconv.Itoa(len(ports))+" ports")
		return
	}
	for i, host := range hosts {
		m.flag(r.Key, "http://"+net.JoinHostPort(config.Unbracket(host), ports[i]))
	}
}

// lmcacheProxyFlags are those of examples/disagg_prefill/disagg_proxy_server.py in LMCache (2026).
func lmcacheProxyFlags() []theirFlag {
	const slots = "nothing bounds how much of decode's buffer turns take together; --max-per-instance bounds turns"
	return []theirFlag{
		{name: "host", ours: "`--host`"},
		{name: "port", ours: "`--port`"},
		{name: "prefiller-host", ours: "`--prefill`"},
		{name: "prefiller-port", ours: "`--prefill`"},
		{name: "num-prefillers", ours: "`--prefill`"},
		{name: "decoder-host", ours: "`--decode`, `--decoder-registry`"},
		{name: "decoder-port", ours: "`--decode`, `--decoder-registry`"},
		{name: "num-decoders", ours: "`--decode`, `--decoder-registry`"},
		{name: "decoder-init-port", ours: "`--decoder-registry`"},
		{name: "decoder-alloc-port", ours: "`--decoder-registry`"},
		{name: "proxy-host", ours: "`--lmcache-listen`"},
		{name: "proxy-port", ours: "`--lmcache-listen`"},
		{name: "model", remark: slots},
		{name: "pd-buffer-size", remark: slots},
		{name: "chunk-size", remark: slots},
	}
}

func convertLMCacheProxy(m *migration, g theirFlags) {
	m.flag("host", g.last("host", "localhost"))
	m.listenAs(theirFlags{"port": g["port"]})
	m.flag("connector", config.ConnectorLMCache)
	receivers := map[string]any{}
	for _, r := range config.ExampleRoles() {
		count, hosts, ports := "num-prefillers", g.items(r.Hosts, "localhost"), g.items(r.Ports, r.DefaultPort)
		if r.Key == config.RoleDecode {
			count = "num-decoders"
		}
		n, err := strconv.Atoi(g.last(count, "1"))
		if err != nil || n < 1 || n > 64 {
			m.fail(count, "a number from 1 to 64")
			return
		}
		counted := len(hosts) == 1 && len(ports) == 1 && n > 1 // ports of instance i are i higher then
		if counted {
			ports = raised(ports[0], n)
		}
		switch { // one host or port stands for all
		case len(hosts) == 1:
			hosts = repeated(hosts[0], len(ports))
		case len(ports) == 1:
			ports = repeated(ports[0], len(hosts))
		}
		m.pairs(r, hosts, ports)
		if r.Key == config.RolePrefill || len(hosts) != len(ports) {
			continue
		}
		for i, host := range hosts {
			by := 0
			if counted {
				by = i
			}
			receivers["http://"+net.JoinHostPort(config.Unbracket(host), ports[i])] = map[string]any{
				config.MemberHost: config.Unbracket(host), config.MemberInit: m.portsOf(g, "decoder-init-port", "8300", by), config.MemberAlloc: m.portsOf(g, "decoder-alloc-port", "8400", by),
			}
		}
	}
	registry, _ := json.Marshal(receivers) // texts and numbers
	m.flag("decoder-registry", string(registry))
	m.flag("lmcache-listen", net.JoinHostPort(g.last("proxy-host", "localhost"), g.last("proxy-port", "8500")))
}

// portsOf reads ports, each raised by some.
func (m *migration) portsOf(g theirFlags, name, otherwise string, by int) (ports []int) {
	for _, text := range g.items(name, otherwise) {
		n, err := strconv.Atoi(text)
		if err != nil {
			m.fail(name, "ports")
			return nil
		}
		ports = append(ports, n+by)
	}
	return ports
}

// raised counts n ports from first; what is no port stays for the check of the result.
func raised(first string, n int) []string {
	port, err := strconv.Atoi(first)
	if err != nil {
		return repeated(first, n)
	}
	ports := make([]string, n)
	for i := range ports {
		ports[i] = strconv.Itoa(port + i)
	}
	return ports
}

func repeated(text string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = text
	}
	return all
}

// mooncakeProxyFlags are those of examples/disaggregated/mooncake_connector/mooncake_connector_proxy.py in vLLM (2026).
func mooncakeProxyFlags() []theirFlag {
	return []theirFlag{
		{name: "host", ours: "`--host`"},
		{name: "port", ours: "`--port`"},
		{name: "prefill", list: true, ours: "`--prefill`, `--mooncake-bootstrap-port`", remark: "a port behind the URL is that of the bootstrap server"},
		{name: "decode", ours: "`--decode`"},
	}
}

func convertMooncakeProxy(m *migration, g theirFlags) {
	m.flag("host", g.last("host", "127.0.0.1"))
	m.listenAs(theirFlags{"port": g["port"]})
	m.flag("connector", config.ConnectorMooncake)
	ports := map[string]bool{}
	for _, values := range g["prefill"] {
		m.flag("prefill", values[0])
		port := "8998"
		if len(values) > 1 && !strings.EqualFold(values[1], "none") {
			port = values[1]
		}
		ports[port] = true
	}
	for port := range ports {
		m.flag("mooncake-bootstrap-port", port)
	}
	if len(ports) > 1 {
		m.fail("prefill", "one bootstrap port for all prefill instances; different ones take a file (--config) with bootstrap_port for each")
		return
	}
	for _, values := range g["decode"] {
		m.flag("decode", values[0])
	}
	for _, role := range []string{config.RolePrefill, config.RoleDecode} {
		if !g.has(role) {
			m.fail(role, "the URL of an instance")
		}
	}
}
