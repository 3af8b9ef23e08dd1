package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	entries, err := jsonMembers([]byte(text))
	if err != nil || len(entries) == 0 {
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
	members, err := jsonMembers(value)
	if err != nil {
		r.refuse(key, string(value), "an object with "+strings.Join([]string{MemberHost, MemberInit, MemberAlloc}, ", "))
		return to
	}
	seen := map[string]bool{}
	for _, m := range members {
		at := key + "." + m.name
		if seen[m.name] {
			r.refuse(at, "", "each member once")
			continue
		}
		seen[m.name] = true
		switch m.name {
		case MemberHost:
			if json.Unmarshal(m.value, &to.Host) != nil || !upstream.IsHost(to.Host) {
				r.refuse(at, string(m.value), "a host name or an IP address")
			}
		case MemberInit:
			to.InitPorts = r.ports(at, m.value)
		case MemberAlloc:
			to.AllocPorts = r.ports(at, m.value)
		case memberQuery:
			to.QueryPorts = r.ports(at, m.value)
		default:
			r.refuse(at, "", "a known member: "+strings.Join([]string{MemberHost, MemberInit, MemberAlloc, memberQuery}, ", "))
		}
	}
	for _, name := range []string{MemberHost, MemberInit, MemberAlloc} {
		if !seen[name] {
			r.refuse(key+"."+name, "", "a value")
		}
	}
	r.sameLength(key+"."+MemberAlloc, MemberInit, to.InitPorts, to.AllocPorts)
	r.sameLength(key+"."+memberQuery, MemberInit, to.InitPorts, to.QueryPorts)
	return to
}

func (r *registryReader) sameLength(key, other string, as, list []int) {
	if len(as) > 0 && len(list) > 0 && len(as) != len(list) {
		r.refuse(key, fmt.Sprint(list), fmt.Sprintf("as many ports as %s, %d", other, len(as)))
	}
}

func (r *registryReader) ports(key string, value []byte) []int {
	items := []json.RawMessage{value}
	if bytes.HasPrefix(bytes.TrimSpace(value), []byte("[")) {
		items = nil
		_ = json.Unmarshal(value, &items) // the decoder has read it
	}
	ports := make([]int, 0, len(items))
	for _, item := range items {
		if text := string(bytes.TrimSpace(item)); upstream.IsPort(text) {
			n, _ := strconv.Atoi(text)
			ports = append(ports, n)
		}
	}
	if len(items) == 0 || len(ports) < len(items) {
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
func jsonMembers(data []byte) (members []jsonMember, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := jsonMember{name: name.(string)} // a token before a value is a name
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return members, nil
}
