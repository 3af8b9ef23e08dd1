package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"carryover/upstream"
	"carryover/upstream/connector/lmcache"
)

// registryReader reads lmcache.decoder_registry in the form of --decoder-registry of production-stack's router: from a decode instance's
// URL to the members of disagg_spec without req_id. Each kind of port is a list with one port per tensor-parallel rank of prefill.
//
//	{"http://10.0.0.3:8200": {"receiver_host": "10.0.0.3", "receiver_init_port": [7300], "receiver_alloc_port": [7400]}}
//
// LMCache is not strict: a missing member is a KeyError in prefill's scheduler. A port without a listener keeps prefill from answering
// this and all later requests (LMCache 0.5.6, measured). A single port, as in LMCache's older examples, is a list of one.
type registryReader struct {
	*validation
	receivers map[string]lmcache.Receiver
}

const registryKey = "lmcache.decoder_registry"

// The members of an entry.
const (
	MemberHost  = "receiver_host"
	MemberInit  = "receiver_init_port"
	MemberAlloc = "receiver_alloc_port"
	memberQuery = "receiver_query_port"
)

func (r *registryReader) refuse(key, value, want string) {
	if len(value) > 80 {
		value = value[:80] + "…"
	}
	if value != "" {
		value = Quoted(value)
	}
	r.faults = append(r.faults, Fault{Key: key, Value: value, Origin: r.origin(key), Want: want})
}

func (r *registryReader) read(text string) {
	entries, _ := jsonMembers([]byte(text))
	if len(entries) == 0 {
		r.refuse(registryKey, text, "a JSON object of receivers by the URL of their decode instance")
		return
	}
	r.receivers = map[string]lmcache.Receiver{}
	for _, entry := range entries {
		u, err := upstream.ParseBaseURL(entry.name)
		if err != nil {
			r.refuse(registryKey, entry.name, "keys "+wantBaseURL)
			continue
		}
		at := upstream.Instance{BaseURL: u.String()}.Authority()
		if _, known := r.receivers[at]; known {
			r.refuse(registryKey, entry.name, "each decode instance once")
			continue
		}
		r.receivers[at] = r.receiver(registryKey+"["+entry.name+"]", entry.value)
	}
}

// receiver reads one entry; unreadable members stay zero.
func (r *registryReader) receiver(key string, value []byte) (to lmcache.Receiver) {
	members, ok := jsonMembers(value)
	if !ok {
		r.refuse(key, string(value), "an object with "+strings.Join([]string{MemberHost, MemberInit, MemberAlloc}, ", "))
		return to
	}
	ports := map[string]*[]int{MemberInit: &to.InitPorts, MemberAlloc: &to.AllocPorts, memberQuery: &to.QueryPorts}
	seen := map[string]bool{}
	for _, m := range members {
		at := key + "." + m.name
		switch list := ports[m.name]; {
		case seen[m.name]:
			r.refuse(at, "", "each member once")
		case list != nil:
			*list = r.ports(at, m.value)
		case m.name != MemberHost:
			r.refuse(at, "", "a known member: "+strings.Join([]string{MemberHost, MemberInit, MemberAlloc, memberQuery}, ", "))
		case json.Unmarshal(m.value, &to.Host) != nil || !upstream.IsHost(to.Host):
			r.refuse(at, string(m.value), "a host name or an IP address")
		}
		seen[m.name] = true
	}
	for _, name := range []string{MemberHost, MemberInit, MemberAlloc} {
		if !seen[name] {
			r.refuse(key+"."+name, "", "a value")
		}
	}
	for _, name := range []string{MemberAlloc, memberQuery} {
		if n, list := len(to.InitPorts), *ports[name]; n > 0 && len(list) > 0 && n != len(list) {
			r.refuse(key+"."+name, fmt.Sprint(list), fmt.Sprintf("as many ports as %s, %d", MemberInit, n))
		}
	}
	return to
}

func (r *registryReader) ports(key string, value []byte) []int {
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		items = []json.RawMessage{value}
	}
	var ports []int
	for _, item := range items {
		if upstream.IsPort(string(item)) {
			n, _ := strconv.Atoi(string(item))
			ports = append(ports, n)
		}
	}
	if len(ports) == 0 || len(ports) < len(items) {
		r.refuse(key, string(value), "a port, or a list with a port per tensor-parallel rank of prefill")
		return nil
	}
	return ports
}

type jsonMember struct {
	name  string
	value json.RawMessage
}

// jsonMembers keeps repeated names, which a map would hide, and their case, which a struct would ignore.
func jsonMembers(data []byte) (members []jsonMember, ok bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, _ := d.Token(); open != json.Delim('{') || !json.Valid(data) {
		return nil, false
	}
	for d.More() { // valid JSON gives no error
		name, _ := d.Token()
		m := jsonMember{name: name.(string)} // a token before a value is a name
		_ = d.Decode(&m.value)
		members = append(members, m)
	}
	return members, true
}
