package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
  - {url: 'http://[fd00::1]:8000', kv_ttl: 7m}
  - url: https://d-2.example
    name: d-2
`

// readInstances reads a file with the settings' defaults.
func readInstances(text string) ([]upstream.Instance, error) {
	c := Default()
	c.Discovery.File = "f"
	return c.ReadInstances("f", []byte(text))
}

func TestReadInstances(t *testing.T) {
	want := []upstream.Instance{
		{Name: "p-1@0", BaseURL: "http://p-1:8000", Role: upstream.RolePrefill, Weight: 2, KVHost: "pin", KVEvents: "tcp://p-1.events:5557", KVPort: 8999, Ranked: true},
		{Name: "p-1@1", BaseURL: "http://p-1:8000", Role: upstream.RolePrefill, Weight: 2, KVHost: "pin", KVEvents: "tcp://p-1.events:5558", KVPort: 8999, Ranked: true, Rank: 1},
		{Name: "[fd00::1]:8000", BaseURL: "http://[fd00::1]:8000", Role: upstream.RoleDecode, Weight: 1, KVHost: "auto", KVTTL: 7 * time.Minute},
		{Name: "d-2", BaseURL: "https://d-2.example", Role: upstream.RoleDecode, Weight: 1, KVHost: "auto", KVTTL: 8 * time.Minute},
	}
	asJSON := "{\r\n\t\"prefill\": [{\"url\": \"http:\\/\\/p-1:8000\", \"name\": \"p-1\", \"weight\": 2, \"ranks\": 2, \"kv_host\": \"pin\", \"kv_events\": \"tcp:\\/\\/p-1.events:5557\", \"bootstrap_port\": 8999}],\r\n" +
		"\t\"decode\": [\r\n\t\t{\"url\": \"http://[fd00::1]:8000\", \"kv_ttl\": \"420s\"}, {\"url\": \"https://d-2.example\", \"name\": \"d-2\"}\r\n\t]\r\n}\r\n"
	for name, text := range map[string]string{"YAML": wholeFile, "JSON": asJSON} {
		if got, err := readInstances(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestReadInstances_MayBeOfOneRoleOrNone(t *testing.T) {
	for text, want := range map[string]int{
		"prefill: []":                                 0,
		"prefill: []\ndecode: []":                     0,
		"decode: [{url: 'http://a'}]":                 1,
		"decode: &l [{url: 'http://a'}]":              1,
		"prefill: &l [{url: 'http://a'}]\ndecode: *l": 2,
	} {
		if got, err := readInstances(text); err != nil || len(got) != want {
			t.Errorf("%q: got %+v, %v, want %d", text, got, err, want)
		}
	}
}

// What a configuration's lists refuse is in the tests of Load.
func TestReadInstances_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "has neither",
		"# nothing\n":                           "has neither",
		"{}":                                    "has neither",
		"null":                                  "has neither",
		"[]":                                    "f:1): want a mapping with keys prefill, decode",
		"prefill: [a]":                          "prefill[0]: (f:1): want a mapping with keys url",
		"prefill: []\nDecode: []":               "Decode: (f:2): want a known key: prefill, decode",
		"prefill: []\nprefill: []":              "prefill: (f:2): want each key once",
		"limits: {max_queue: 1}":                "limits: (f:1): want a known key",
		"decode:\n- url: a:8000":                `decode[0].url: "a:8000" (f:2): want http://host`,
		"decode:\n- url: http://a\n  weight: 0": `decode[0].weight: "0" (f:3): want`,
		"decode:\n- url: http://a\n  kv_events: tcp://*:5557":                  `decode[0].kv_events: "tcp://*:5557" (f:3): want tcp://host:port`,
		"decode:\n- url: http://a\n- url: http://A:80/":                        "decode[1].url: \"http://a:80\" (f:3): want each decode instance once",
		"decode:\n- url: http://a\n  name: b\n- url: http://c\n  name: b":      "decode[1].name: \"b\" (f:5): want a name of its own",
		"prefill: []\n---\ndecode: []":                                         "f: want one YAML document",
		"prefill: [\n":                                                         "line 1",
		"decode: &l\n- *l":                                                     "decode[0]: (f:2): want a mapping",
		"decode:\n" + strings.Repeat("- {url: 'http://d', ranks: 64}\n", 4097): "at most 4096 instances",
	} {
		got, err := readInstances(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %d, %v, want %q", text, len(got), err, want)
		}
	}
}

func TestReadInstances_IsBounded(t *testing.T) {
	_, err := readInstances("decode:\n" + strings.Repeat("- url: x\n", 1000))
	if err == nil || !strings.HasSuffix(err.Error(), "\nand 990 more") || len(err.Error()) > 2000 {
		t.Errorf("got %v, want ten faults and how many more", err)
	}
	text := "decode:\n"
	for n := range 65 {
		text += fmt.Sprintf("- {url: 'http://d-%d', ranks: 64}\n", n)
	}
	if _, err := readInstances(text); err == nil || !strings.Contains(err.Error(), "at most 4096 instances") {
		t.Errorf("got %v", err)
	}
}

func FuzzReadInstances(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := readInstances(string(data))
		if err != nil {
			if len(err.Error()) > 8<<10 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if len(all) > maxInstances {
			t.Fatalf("%d instances", len(all))
		}
		for _, i := range all {
			again, err := upstream.NewInstance(i.Role, "", i.BaseURL)
			if err != nil || again.BaseURL != i.BaseURL {
				t.Fatalf("%+v: %v", i, err)
			}
			if i.Weight < 1 || i.Weight > maxWeight || i.KVTTL < 0 || i.KVTTL > 0 && i.Role != upstream.RoleDecode ||
				i.Ranked && !strings.HasSuffix(i.Name, fmt.Sprintf("@%d", i.Rank)) {
				t.Fatalf("%+v", i)
			}
		}
	})
}
