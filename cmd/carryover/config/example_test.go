package config

import (
	"slices"
	"strings"
	"testing"
)

func TestExpandLists_JoinsTheValuesOfAListFlag(t *testing.T) {
	for _, tc := range []struct {
		name string
		args string // separated by spaces
		want string // separated by |
	}{
		{"nothing", "", ""},
		{"other flags stay", "serve --port 8000 --ttl=1s", "serve|--port|8000|--ttl=1s"},
		{"one value", "--prefiller-host a", "--prefiller-host=a"},
		{"three values", "--prefiller-hosts a b c", "--prefiller-hosts=a b c"},
		{"ends at a flag", "--decoder-port 1 2 --port 8000", "--decoder-port=1 2|--port|8000"},
		{"ends at a short flag", "--decoder-ports 1 2 -h", "--decoder-ports=1 2|-h"},
		{"ends at the next list", "--decoder-host a b --decoder-port 1 2", "--decoder-host=a b|--decoder-port=1 2"},
		{"no value at the end", "--prefiller-host", "--prefiller-host="},
		{"no value before a flag", "--prefiller-host --port 1", "--prefiller-host=|--port|1"},
		{"equals sign takes one value", "--prefiller-host=a b", "--prefiller-host=a|b"},
		{"IPv6", "--prefiller-host ::1 fe80::1", "--prefiller-host=::1 fe80::1"},
		{"negative number is a value", "--prefiller-port -1 8100", "--prefiller-port=-1 8100"},
		{"command behind a list", "--prefiller-host a b serve --port 1", "--prefiller-host=a b|serve|--port|1"},
		{"check-config behind a list", "--decoder-port 1 check-config", "--decoder-port=1|check-config"},
		{"host called serve", "--prefiller-host serve --port 1", "--prefiller-host=serve|--port|1"},
		{"host called serve after the command", "serve --prefiller-host a serve", "serve|--prefiller-host=a serve"},
		{"command without configuration is a host", "--prefiller-host a demo", "--prefiller-host=a demo"},
		{"nothing after --", "--port 1 -- --prefiller-host a b", "--port|1|--|--prefiller-host|a|b"},
		{"list ends at --", "--prefiller-host a -- b", "--prefiller-host=a|--|b"},
		{"longer name is another flag", "--prefiller-hosting a b", "--prefiller-hosting|a|b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ExpandLists(strings.Fields(tc.args))
			if want := slices.DeleteFunc(strings.Split(tc.want, "|"), func(s string) bool { return s == "" }); !slices.Equal(got, want) {
				t.Errorf("expandLists(%q)\n got %q\nwant %q", tc.args, got, want)
			}
			if got == nil {
				t.Error("expandLists returned nil, which cobra takes for os.Args")
			}
		})
	}
}
