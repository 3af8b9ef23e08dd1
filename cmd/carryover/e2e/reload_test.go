package e2e

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

// startReloadable starts two instances of each role, and the whole program with a file that names the first of each.
func startReloadable(t *testing.T, flags ...string) *rig {
	t.Helper()
	instances := rig{prefill: startInstances(t, 2, vllmsim.DefaultConfig()), decode: startInstances(t, 2, vllmsim.DefaultConfig())}
	instances.file = filepath.Join(t.TempDir(), "carryover.yaml")
	instances.configure(t, naming(instances.prefill[:1], instances.decode[:1], ""))
	r, log := startProgram(t, nil, append([]string{"--config", instances.file}, flags...)...)
	r.prefill, r.decode, r.file, r.log = instances.prefill, instances.decode, instances.file, log
	return r
}

// naming is a file with these instances, whose entries have settings.
func naming(prefill, decode []*vllmsim.Instance, settings string) string {
	text := ""
	for role, some := range map[string][]*vllmsim.Instance{config.RolePrefill: prefill, config.RoleDecode: decode} {
		if len(some) > 0 {
			text += role + ":\n"
		}
		for _, instance := range some {
			text += "  - {url: " + instance.URL() + settings + "}\n"
		}
	}
	return text
}

// refusesReload puts a file in place that is not to be put in force.
func (r *rig) refusesReload(t *testing.T, what, text string) (why string) {
	t.Helper()
	before := r.serving(t)
	r.configure(t, text)
	status, why := r.operate(t, http.MethodPost, "/admin/reload", nil)
	if status != http.StatusUnprocessableEntity {
		t.Errorf("%s: %d %s, want 422", what, status, why)
	}
	if now := r.serving(t); !slices.Equal(now, before) {
		t.Errorf("%s: %v serve, want %v", what, now, before)
	}
	return why
}

func TestReload_ChangesInstancesAndRefusesWhatItCannotChange(t *testing.T) {
	r := startReloadable(t)
	for name, tc := range map[string]struct{ more, why string }{
		"an unknown key":            {"decoder: []\n", "decoder"},
		"a bad value with its line": {"routing: {decode: best}\n", "carryover.yaml:"},
		"what takes a restart":      {"store: {max_tickets: 7}\n", "store.max_tickets"},
	} {
		if why := r.refusesReload(t, name, naming(r.prefill, r.decode, "")+tc.more); !strings.Contains(why, tc.why) {
			t.Errorf("%s: %s, want what names %s", name, why, tc.why)
		}
	}
	r.refusesReload(t, "a file that an editor is about to write", "")
	r.reload(t, naming(r.prefill, r.decode, "")+"routing: {prefill: round_robin, disagg_threshold: 100}\n")
	if got := r.serving(t); len(got) != 4 {
		t.Errorf("%v serve after a reload, want 4", got)
	}
	status, events := r.operate(t, http.MethodGet, "/admin/events", nil)
	before, refused, _ := strings.Cut(events, "The configuration was refused, and nothing has changed: ")
	if status != http.StatusOK || !strings.Contains(before, `"kind":"reload","text":"The configuration was read again and is in force; changed: `) || !strings.Contains(refused, "store.max_tickets") ||
		!strings.Contains(before, `prefill, decode, routing.prefill: \"round_robin\" instead of \"auto\", routing.disagg_threshold: \"100\" instead of \"0\"`) || !strings.Contains(before, "Instances were added: prefill ") {
		t.Errorf("events, newest first: %d %s", status, events)
	}
}
