package discovery

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/server/pins"
	"carryover/upstream"
)

const wholeFile = `# all keys
prefill:
  - url: HTTP://P-1:8000/
    name: p-1
    weight: 2
    ranks: 2
    kv_host: pin
    kv_events: tcp://p-1.events:5557
    bootstrap_port: 8999
decode:
  - {url: 'http://[fd00::1]:8000', kv_ttl: 8m}
  - url: https://d-2.example
    name: d-2
`

func TestParseFile(t *testing.T) {
	want := []upstream.Instance{
		{Name: "p-1@0", BaseURL: "http://p-1:8000", Role: upstream.RolePrefill, Weight: 2, KVHost: "pin", KVEvents: "tcp://p-1.events:5557", KVPort: 8999, Ranked: true},
		{Name: "p-1@1", BaseURL: "http://p-1:8000", Role: upstream.RolePrefill, Weight: 2, KVHost: "pin", KVEvents: "tcp://p-1.events:5558", KVPort: 8999, Ranked: true, Rank: 1},
		{Name: "[fd00::1]:8000", BaseURL: "http://[fd00::1]:8000", Role: upstream.RoleDecode, KVTTL: 8 * time.Minute},
		{Name: "d-2", BaseURL: "https://d-2.example", Role: upstream.RoleDecode},
	}
	asJSON := "{\r\n\t\"prefill\": [{\"url\": \"http:\\/\\/p-1:8000\", \"name\": \"p-1\", \"weight\": 2, \"ranks\": 2, \"kv_host\": \"pin\", \"kv_events\": \"tcp:\\/\\/p-1.events:5557\", \"bootstrap_port\": 8999}],\r\n" +
		"\t\"decode\": [\r\n\t\t{\"url\": \"http://[fd00::1]:8000\", \"kv_ttl\": \"480s\"}, {\"url\": \"https://d-2.example\", \"name\": \"d-2\"}\r\n\t]\r\n}\r\n"
	for name, text := range map[string]string{"YAML": wholeFile, "JSON": asJSON} {
		if got, err := parseFile([]byte(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestParseFile_MayBeOfOneRoleOrNone(t *testing.T) {
	for text, want := range map[string]int{
		"prefill: []":                                 0,
		"prefill: []\ndecode: []":                     0,
		"decode: [{url: 'http://a'}]":                 1,
		"decode: &l [{url: 'http://a'}]":              1,
		"prefill: &l [{url: 'http://a'}]\ndecode: *l": 2,
	} {
		if got, err := parseFile([]byte(text)); err != nil || len(got) != want {
			t.Errorf("%q: got %+v, %v, want %d", text, got, err, want)
		}
	}
}

func TestParseFile_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "has neither",
		"# nothing\n":                          "has neither",
		"{}":                                   "line 1: file: want a mapping with keys prefill, decode",
		"null":                                 "line 1: file: want a mapping",
		"[]":                                   "line 1: file: want a mapping",
		"prefill:":                             "line 1: prefill: want a list of instances",
		"prefill: a":                           "line 1: prefill: want a list",
		"prefill: {url: a}":                    "line 1: prefill: want a list",
		"prefill: [a]":                         "line 1: prefill[0]: want a mapping",
		"prefill:\n- url: http://a\n  urls: x": `line 3: "urls": want a known key: url, name, weight, ranks, kv_host`,
		"prefill:\n- url: http://a\n  kv_ttl: 480s":                                     `line 3: "kv_ttl": want a known key`,
		"prefill: []\nDecode: []":                                                       `line 2: "Decode": want a known key: prefill, decode`,
		"prefill: []\nprefill: []":                                                      "line 2: prefill: want each key once",
		"{\"decode\": [],\n\"decode\": []}":                                             "line 2: decode: want each key once",
		"decode:\n- url: http://a\n  url: http://b":                                     "line 3: url: want each key once",
		"decode:\n- name: a":                                                            "line 2: decode[0].url: want http://host",
		"decode:\n- name: a\n  url: http://a/v1":                                        "line 3: decode[0].url: want http://host",
		"decode:\n- url: a:8000":                                                        "line 2: decode[0].url: want http://host",
		"decode:\n- url: [http://a]":                                                    "line 2: decode[0].url: want a single value",
		"decode:\n- url: ~":                                                             "line 2: decode[0].url: want a single value",
		"decode:\n- url: http://a\n  name: a b":                                         "line 3: decode[0].name: want 1 to 128",
		"decode:\n- url: http://a\n  name: ''":                                          "line 3: decode[0].name: want 1 to 128",
		"decode:\n- url: http://a\n  weight: 0":                                         "line 3: decode[0].weight: want a whole number from 1 to 1000",
		"decode:\n- url: http://a\n  weight: 1.5":                                       "decode[0].weight: want a whole number",
		"decode:\n- url: http://a\n  ranks: 65":                                         "decode[0].ranks: want a whole number from 0 to 64",
		"decode:\n- url: http://a\n  ranks: -1":                                         "decode[0].ranks: want a whole number",
		"decode:\n- url: http://a\n  kv_host: a b":                                      "decode[0].kv_host: want auto, pin, a host",
		"decode:\n- url: http://a\n  kv_events: tcp://*:5557":                           "line 3: decode[0].kv_events: want tcp://host:port",
		"decode:\n- url: http://a\n  bootstrap_port: 8998":                              `line 3: "bootstrap_port": want a known key`,
		"prefill:\n- url: http://a\n  bootstrap_port: 0":                                "line 3: prefill[0].bootstrap_port: want a whole number from 1 to 65535",
		"decode:\n- url: http://a\n  kv_ttl: 480":                                       "decode[0].kv_ttl: want a duration such as 480s",
		"decode:\n- url: http://a\n  kv_ttl: 30s":                                       "decode[0].kv_ttl: want a duration such as 480s",
		"decode:\n- url: http://a\n- url: http://A:80/":                                 "line 3: decode[1].url: want each address once in a role, line 2 has a:80 too",
		"decode:\n- url: http://a\n  name: b\n- url: http://c\n  name: b":               "line 4: decode[1].name: want each name once in a role, line 2 has b too",
		"decode:\n- url: http://a\n  name: n@1\n- url: http://c\n  name: n\n  ranks: 2": "line 4: decode[1].name: want each name once in a role, line 2 has n@1 too",
		"prefill: []\n---\ndecode: []":                                                  "one YAML document",
		`{"prefill": []}{"decode": []}`:                                                 "",
		"prefill: [\n":                                                                  "line 1",
		"prefill: []\n\tdecode: []":                                                     "line 2",
		"prefill: *nothing":                                                             "unknown anchor",
		"decode: &l\n- *l":                                                              "decode[0]: want a mapping",
		"a: &a [x]\nprefill: [<<: *a]":                                                  `line 1: "a": want a known key`,
	} {
		got, err := parseFile([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v, want %q", text, got, err, want)
		}
	}
}

func TestParseFile_TellsAllFaultsUpToABound(t *testing.T) {
	_, err := parseFile([]byte("decode:\n- url: x\n- url: http://a\n  weight: many\n"))
	if err == nil || !strings.Contains(err.Error(), "line 2: ") || !strings.Contains(err.Error(), "line 4: ") {
		t.Errorf("got %v, want lines 2 and 4", err)
	}
	_, err = parseFile([]byte("decode:\n" + strings.Repeat("- url: x\n", 1000)))
	if err == nil || !strings.HasSuffix(err.Error(), "; and 990 more") || len(err.Error()) > 2000 {
		t.Errorf("got %v, want ten faults and how many more", err)
	}
}

func TestParseFile_IsBounded(t *testing.T) {
	text := "decode:\n"
	for n := range 65 {
		text += fmt.Sprintf("- {url: 'http://d-%d', ranks: 64}\n", n)
	}
	if _, err := parseFile([]byte(text)); err == nil || !strings.Contains(err.Error(), "line 66: decode[64]: want at most 4096 instances") {
		t.Errorf("got %v", err)
	}
}

func TestParseFile_RefusesATimeThatNoTicketLives(t *testing.T) {
	if minKVTTL != pins.MarginWithExpiry {
		t.Errorf("minKVTTL is %s, the margin of tickets %s", minKVTTL, pins.MarginWithExpiry)
	}
}

func FuzzParseFile(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseFile(data)
		if err != nil {
			if len(err.Error()) > 8<<10 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if len(all) > maxInstances {
			t.Fatalf("%d instances", len(all))
		}
		if union, clashes := unite([][]upstream.Instance{all}); len(clashes) > 0 || len(union) != len(all) {
			t.Fatalf("two instances of one name or address: %+v", clashes)
		}
		for _, i := range all {
			again, err := upstream.NewInstance(i.Role, "", i.BaseURL)
			if err != nil || again.BaseURL != i.BaseURL {
				t.Fatalf("%+v: %v", i, err)
			}
			if i.Weight < 0 || i.Weight > maxWeight || i.KVTTL < 0 || i.KVTTL > 0 && i.Role != upstream.RoleDecode ||
				i.Ranked && !strings.HasSuffix(i.Name, fmt.Sprintf("@%d", i.Rank)) {
				t.Fatalf("%+v", i)
			}
		}
		// What is read is what is written: the same list as plain JSON gives the same instances.
		type entry map[string]any
		written := map[string][]entry{"prefill": {}, "decode": {}}
		for _, i := range all {
			if i.Ranked || !upstream.IsName(i.Name) {
				return // only names that are not given may be longer
			}
			e := entry{"url": i.BaseURL, "name": i.Name}
			if i.Weight > 0 {
				e["weight"] = i.Weight
			}
			if i.KVHost != "" {
				e["kv_host"] = i.KVHost
			}
			if i.KVTTL > 0 {
				e["kv_ttl"] = i.KVTTL.String()
			}
			written[i.Role.String()] = append(written[i.Role.String()], e)
		}
		text, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseFile(text)
		if err != nil || len(again) != len(all) {
			t.Fatalf("%s: %+v, %v, want %+v", text, again, err, all)
		}
		for _, i := range all {
			if !slices.Contains(again, i) {
				t.Fatalf("%s: %+v is missing in %+v", text, i, again)
			}
		}
	})
}
