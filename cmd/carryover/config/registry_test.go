package config

import (
	"reflect"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/connector/lmcache"
)

func TestReceivers_ByAuthorityOfTheDecodeInstance(t *testing.T) {
	c := LMCacheConfig{DecoderRegistry: ` {
		"http://Dec-0:8000/": {"receiver_host": "dec-0.svc", "receiver_init_port": [7300, 7301], "receiver_alloc_port": [7400, 7401]},
		"https://dec-1": {"receiver_host": "fd00::1", "receiver_init_port": 7300, "receiver_alloc_port": [7400], "receiver_query_port": 7500}
	} `}
	want := map[string]lmcache.Receiver{
		"dec-0:8000": {Host: "dec-0.svc", InitPorts: []int{7300, 7301}, AllocPorts: []int{7400, 7401}},
		"dec-1:443":  {Host: "fd00::1", InitPorts: []int{7300}, AllocPorts: []int{7400}, QueryPorts: []int{7500}},
	}
	if got, err := c.Receivers(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := (&LMCacheConfig{}).Receivers(); err != nil || got != nil {
		t.Errorf("without a registry %+v, %v, want none", got, err)
	}
}

func TestReceivers_AllFaultsAreNamed(t *testing.T) {
	const good = `"receiver_host":"d","receiver_init_port":[1],"receiver_alloc_port":[2]`
	for _, tc := range []struct{ registry, want string }{
		{"x", `lmcache.decoder_registry: "x" (default): want a JSON object of receivers by the URL of their decode instance`},
		{"{}", `"{}" (default): want a JSON object of receivers`},
		{"[]", `want a JSON object of receivers`},
		{"{} {}", `want a JSON object of receivers`},
		{`{"http://d":{` + good + `}`, `want a JSON object of receivers`},
		{`{"d:8000":{` + good + `}}`, `lmcache.decoder_registry: "d:8000" (default): want keys http://host[:port]`},
		{`{"http://d/v1":{` + good + `}}`, `"http://d/v1" (default): want keys http://host[:port]`},
		{`{"http://u:pw@d":{` + good + `}}`, `"http://<redacted>@d" (default): want keys`},
		{`{"http://d:80":{` + good + `},"http://D/":{` + good + `}}`, `"http://D/" (default): want each decode instance once`},
		{`{"http://d":[]}`, `lmcache.decoder_registry[http://d]: "[]" (default): want an object with receiver_host, receiver_init_port, receiver_alloc_port`},
		{`{"http://d":{` + good + `,"receiver_hosts":1}}`, `lmcache.decoder_registry[http://d].receiver_hosts: (default): want a known member: receiver_host,`},
		{`{"http://d":{` + good + `,"req_id":"1"}}`, `[http://d].req_id: (default): want a known member`},
		{`{"http://d":{` + good + `,"receiver_host":"e"}}`, `[http://d].receiver_host: (default): want each member once`},
		{`{"http://d":{"Receiver_host":"d","receiver_init_port":[1],"receiver_alloc_port":[2]}}`, `[http://d].receiver_host: (default): want a value`},
		{`{"http://d":{"receiver_host":"http://d","receiver_init_port":[1],"receiver_alloc_port":[2]}}`, `.receiver_host: "\"http://d\"" (default): want a host name`},
		{`{"http://d":{"receiver_host":null,"receiver_init_port":[1],"receiver_alloc_port":[2]}}`, `.receiver_host: "null" (default): want a host name`},
		{`{"http://d":{"receiver_host":"d","receiver_init_port":[],"receiver_alloc_port":[2]}}`, `.receiver_init_port: "[]" (default): want a port, or a list`},
		{`{"http://d":{"receiver_host":"d","receiver_init_port":["1"],"receiver_alloc_port":[2]}}`, `.receiver_init_port: "[\"1\"]" (default): want a port, or a list`},
		{`{"http://d":{"receiver_host":"d","receiver_init_port":[1],"receiver_alloc_port":70000}}`, `.receiver_alloc_port: "70000" (default): want a port`},
		{`{"http://d":{"receiver_host":"d","receiver_init_port":[1.0],"receiver_alloc_port":[0]}}`, `.receiver_init_port: "[1.0]" (default): want a port`},
		{`{"http://d":{"receiver_host":"d","receiver_init_port":[1,2],"receiver_alloc_port":[3]}}`, `.receiver_alloc_port: "[3]" (default): want as many ports as receiver_init_port, 2`},
		{`{"http://d":{` + good + `,"receiver_query_port":[3,4]}}`, `.receiver_query_port: "[3 4]" (default): want as many ports as receiver_init_port, 1`},
		{`{"d":{` + good + `},"http://d":{"receiver_host":"d"}}`, "keys http://host[:port] or https://host[:port], without path, query and user\n" +
			"lmcache.decoder_registry[http://d].receiver_init_port: (default): want a value\nlmcache.decoder_registry[http://d].receiver_alloc_port: (default): want a value"},
	} {
		_, err := (&LMCacheConfig{DecoderRegistry: tc.registry}).Receivers()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s\n got %v\nwant %s", tc.registry, err, tc.want)
		}
	}
}

// FuzzReceivers: what is accepted is complete, and no text ends the program.
func FuzzReceivers(f *testing.F) {
	f.Add(`{"http://d:8000":{"receiver_host":"d","receiver_init_port":[1,2],"receiver_alloc_port":[3,4],"receiver_query_port":[5,6]}}`)
	f.Add(`{"http://d":{"receiver_host":"d","receiver_init_port":1,"receiver_alloc_port":2}}`)
	f.Add(`{"http://d":{"receiver_host":"d","receiver_host":"d"},"http://d/":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := (&LMCacheConfig{DecoderRegistry: text}).Receivers()
		if err != nil {
			return
		}
		if len(all) == 0 && text != "" {
			t.Errorf("%q is accepted and names nobody", text)
		}
		for at, r := range all {
			if !upstream.IsHost(r.Host) || len(r.InitPorts) == 0 || len(r.InitPorts) != len(r.AllocPorts) || r.QueryPorts != nil && len(r.QueryPorts) != len(r.InitPorts) {
				t.Errorf("%q: %s has %+v", text, at, r)
			}
		}
	})
}
