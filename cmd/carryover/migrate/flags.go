package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"carryover/cmd/carryover/config"
)

// theirFlag is a flag of another proxy, a row of the table in docs/connectors.md.
type theirFlag struct {
	name   string
	toggle bool   // takes no value
	list   bool   // takes all words up to the next flag (nargs "+")
	ours   string // what it becomes, "" for nothing
	remark string
}

// foreignProxy is a proxy whose command lines are translated.
type foreignProxy struct {
	title   string
	flags   []theirFlag
	convert func(*migration, theirFlags)
}

// foreignProxies are the proxies whose flags are known. Of those that know equally many of the flags given the first counts.
func foreignProxies() []foreignProxy {
	return []foreignProxy{
		{title: "the router of vLLM's production-stack", flags: routerFlags(), convert: convertRouter},
		{title: "vLLM's disagg_proxy_multiturn.py and toy_proxy_server.py", flags: exampleFlags(), convert: convertExample},
		{title: "LMCache's disagg_proxy_server.py", flags: lmcacheProxyFlags(), convert: convertLMCacheProxy},
		{title: "vLLM's mooncake_connector_proxy.py", flags: mooncakeProxyFlags(), convert: convertMooncakeProxy},
	}
}

func (p foreignProxy) flag(name string) (theirFlag, bool) {
	i := slices.IndexFunc(p.flags, func(f theirFlag) bool { return f.name == name })
	if i < 0 {
		return theirFlag{}, false
	}
	return p.flags[i], true
}

// theirFlags are the values of each time that a flag is given.
type theirFlags map[string][][]string

func (g theirFlags) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return len(g[name]) > 0 })
}

// last is the value that counts for argparse, otherwise where the flag is not given.
func (g theirFlags) last(name, otherwise string) string {
	if !g.has(name) {
		return otherwise
	}
	return strings.Join(g[name][len(g[name])-1], " ")
}

// items splits a value at commas.
func (g theirFlags) items(name, otherwise string) []string {
	return config.SplitList(g.last(name, otherwise))
}

// words splits a value at spaces.
func (g theirFlags) words(name, otherwise string) []string {
	return strings.Fields(g.last(name, otherwise))
}

// parseTheirs finds the proxy that knows most of the flags, and reads them as argparse does.
func parseTheirs(args []string) (from foreignProxy, given theirFlags, unknown []string, err error) {
	var names []string
	for _, arg := range args {
		if name, flag := strings.CutPrefix(arg, "--"); flag && config.LooksLikeFlag(arg) {
			name, _, _ = strings.Cut(name, "=")
			names = append(names, name)
		}
	}
	most := -1
	for _, p := range foreignProxies() {
		known := 0
		for _, name := range names {
			if _, ok := p.flag(name); ok {
				known++
			}
		}
		if known > most {
			from, most = p, known
		}
	}
	if most == 0 && len(names) > 0 {
		return from, nil, nil, errors.New("none of these is a flag of a proxy that is known")
	}
	given, unknown, err = from.parse(args)
	return from, given, unknown, err
}

// parse also lists the words that are no flags of the proxy.
func (p foreignProxy) parse(args []string) (given theirFlags, unknown []string, err error) {
	given = theirFlags{}
	var faults []error
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		f, known := p.flag(name)
		switch {
		case !strings.HasPrefix(args[i], "--"):
			unknown = append(unknown, fmt.Sprintf("%q is not a flag", args[i]))
			continue
		case !known:
			unknown = append(unknown, fmt.Sprintf("--%s is not a flag of %s", name, p.title))
			for i+1 < len(args) && !config.LooksLikeFlag(args[i+1]) {
				i++
			}
			continue
		}
		var values []string
		switch {
		case inline:
			values = []string{value}
		case !f.toggle:
			for i+1 < len(args) && !config.LooksLikeFlag(args[i+1]) && (f.list || len(values) == 0) {
				i++
				values = append(values, args[i])
			}
		}
		if f.toggle == (len(values) > 0) {
			faults = append(faults, fmt.Errorf("--%s: want %s", name, map[bool]string{true: "no value", false: "a value"}[f.toggle]))
			continue
		}
		given[name] = append(given[name], values)
	}
	return given, unknown, errors.Join(faults...)
}
