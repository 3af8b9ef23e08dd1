package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"carryover/upstream"
)

// The fleet is built for a thousand instances.
const (
	maxInstances = 4096
	maxRanks     = 64
	maxWeight    = 1000
	maxPort      = 65535
	maxFaults    = 10 // in one error
	// minKVTTL is pins.MarginWithExpiry: a ticket ends this long before decode frees its blocks, so with a shorter TTL every
	// ticket would end at once.
	minKVTTL = 30 * time.Second
	maxKVTTL = 8760 * time.Hour // as good as no limit; a duration of centuries would overflow
)

// parseFile reads the instances of a file:
//
//	prefill:
//	  - url: http://10.0.0.1:8000
//	    name: p-1        # host:port of the address unless given
//	    weight: 2        # of the load, compared with others of the role; 1 unless given
//	    ranks: 4         # data-parallel ranks behind the address, each an instance: p-1@0 to p-1@3
//	    kv_host: pin     # auto, pin or a host; the setting kv.host unless given
//	    kv_events: tcp://10.0.0.1:5557 # where it publishes them; its host and the setting kv_events.port unless given
//	    bootstrap_port: 8998 # of prefill only, with Mooncake; the setting mooncake.bootstrap_port unless given
//	decode:
//	  - url: http://10.0.0.2:8000
//	    kv_ttl: 480s     # of decode only; the setting store.decoder_kv_ttl unless given
//
// It is strict, because a typing error would show under load only: unknown and repeated keys are faults, and so are names
// and addresses that two instances of one role share. A file without any role is taken for a half-written file, not for an
// empty list. JSON is read as YAML. The nodes are read by hand, so that all faults are found with their lines, and an alias
// is followed once and never expanded.
func parseFile(data []byte) ([]upstream.Instance, error) {
	if json.Valid(data) {
		// YAML 1.1 has all escapes of JSON but this one.
		data = []byte(strings.NewReplacer(`\\`, `\\`, `\/`, `/`).Replace(string(data)))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one YAML document")
	}
	if len(doc.Content) == 0 {
		return nil, errors.New("want prefill and decode, each a list of instances; the file has neither")
	}
	p := &parsing{lines: map[location]int{}, names: map[[2]string]int{}}
	for _, role := range p.members(doc.Content[0], "file", "prefill", "decode") {
		p.instances(role)
	}
	if len(p.faults) > 0 {
		told := p.faults[:min(len(p.faults), maxFaults)]
		if more := len(p.faults) - len(told); more > 0 {
			told = append(told, fmt.Sprintf("and %d more", more))
		}
		return nil, errors.New(strings.Join(told, "; "))
	}
	return p.all, nil
}

type parsing struct {
	all    []upstream.Instance
	lines  map[location]int
	names  map[[2]string]int // role and name
	faults []string
}

func (p *parsing) refuse(line int, key, want string) {
	p.faults = append(p.faults, fmt.Sprintf("line %d: %s: want %s", line, key, want))
}

type member struct {
	name  string
	line  int
	value *yaml.Node
}

func (p *parsing) members(n *yaml.Node, what string, keys ...string) (list []member) {
	n = followed(n)
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		p.refuse(n.Line, what, "a mapping with keys "+strings.Join(keys, ", "))
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		m := member{name: n.Content[i].Value, line: n.Content[i].Line, value: followed(n.Content[i+1])}
		switch {
		case !slices.Contains(keys, m.name):
			p.refuse(m.line, fmt.Sprintf("%.80q", m.name), "a known key: "+strings.Join(keys, ", "))
		case slices.ContainsFunc(list, func(other member) bool { return other.name == m.name }):
			p.refuse(m.line, m.name, "each key once")
		default:
			list = append(list, m)
		}
	}
	return list
}

func followed(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (p *parsing) instances(list member) {
	if list.value.Kind != yaml.SequenceNode {
		p.refuse(list.line, list.name, "a list of instances, [] for none")
		return
	}
	role, keys := upstream.RolePrefill, []string{"url", "name", "weight", "ranks", "kv_host", "kv_events"}
	if list.name == upstream.RoleDecode.String() {
		role, keys = upstream.RoleDecode, append(keys, "kv_ttl")
	} else {
		keys = append(keys, "bootstrap_port")
	}
	for i, item := range list.value.Content {
		p.instance(role, fmt.Sprintf("%s[%d]", list.name, i), item, keys)
	}
}

func (p *parsing) instance(role upstream.Role, key string, item *yaml.Node, keys []string) {
	faults := len(p.faults)
	instance, ranks, line := upstream.Instance{}, 0, item.Line
	var url, name string
	for _, m := range p.members(item, key, keys...) {
		at := key + "." + m.name
		if m.value.Kind != yaml.ScalarNode || m.value.Tag == "!!null" {
			p.refuse(m.line, at, "a single value")
			continue
		}
		text := m.value.Value
		switch m.name {
		case "url":
			url, line = text, m.line
		case "name":
			if name = text; !upstream.IsName(name) {
				p.refuse(m.line, at, "1 to 128 printable ASCII characters without spaces")
			}
		case "weight":
			instance.Weight = p.number(m.line, at, text, 1, maxWeight)
		case "ranks":
			ranks = p.number(m.line, at, text, 0, maxRanks)
		case "kv_host":
			if instance.KVHost = text; !upstream.IsHost(text) { // auto and pin have the form of hosts too
				p.refuse(m.line, at, "auto, pin, a host name or an IP address")
			}
		case "kv_events":
			if instance.KVEvents = text; !IsPublisher(text) {
				p.refuse(m.line, at, "tcp://host:port")
			}
		case "bootstrap_port":
			instance.KVPort = p.number(m.line, at, text, 1, maxPort)
		case "kv_ttl":
			var err error
			if instance.KVTTL, err = time.ParseDuration(text); err != nil || instance.KVTTL <= minKVTTL || instance.KVTTL > maxKVTTL {
				p.refuse(m.line, at, "a duration such as 480s, more than the 30s by which a ticket ends before its blocks")
			}
		}
	}
	if len(p.faults) > faults {
		return
	}
	checked, err := upstream.NewInstance(role, name, url)
	if err != nil {
		p.refuse(line, key+".url", "http://host[:port] or https://host[:port], without path, query and user")
		return
	}
	instance.Role, instance.Name, instance.BaseURL = role, checked.Name, checked.BaseURL
	if len(p.all)+max(ranks, 1) > maxInstances {
		p.refuse(line, key, fmt.Sprintf("at most %d instances", maxInstances))
		return
	}
	for _, rank := range Ranks(instance, ranks) {
		p.add(rank, line, key)
	}
}

func (p *parsing) add(i upstream.Instance, line int, key string) {
	at, called := locationOf(i), [2]string{i.Role.String(), i.Name}
	if first, taken := p.lines[at]; taken {
		p.refuse(line, key+".url", fmt.Sprintf("each address once in a role, line %d has %s too", first, at.address()))
		return
	}
	if first, taken := p.names[called]; taken {
		p.refuse(line, key+".name", fmt.Sprintf("each name once in a role, line %d has %s too", first, i.Name))
		return
	}
	p.lines[at], p.names[called] = line, line
	p.all = append(p.all, i)
}

func (p *parsing) number(line int, key, text string, low, high int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		p.refuse(line, key, fmt.Sprintf("a whole number from %d to %d", low, high))
	}
	return n
}
