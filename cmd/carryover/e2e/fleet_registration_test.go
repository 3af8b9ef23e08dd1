package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// operates is operate where the answer must have a status.
func (r *rig) operates(t *testing.T, method, path string, body any, want int) gjson.Result {
	t.Helper()
	status, answer := r.operate(t, method, path, body)
	if status != want {
		t.Fatalf("%s %s: %d %s, want %d", method, path, status, answer, want)
	}
	return gjson.Parse(answer)
}

// drain takes a decode instance out of service, or back into it: how is "drain" or "undrain".
func (r *rig) drain(t *testing.T, name, how string) gjson.Result {
	t.Helper()
	return r.operates(t, http.MethodPost, "/admin/instances/decode/"+url.PathEscape(name)+"/"+how, nil, http.StatusOK)
}

// state is what operators are shown of an instance, "" if it is not there.
func (r *rig) state(t *testing.T, name string) string {
	t.Helper()
	return r.operates(t, http.MethodGet, "/admin/instances", nil, http.StatusOK).Get(`instances.#(name=="` + name + `").state`).String()
}

func TestFleet_RegisteredInstanceServesDrainsAndGoes(t *testing.T) {
	t.Parallel()
	g := startChanging(t, rigConfig{flags: []string{"--discovery-registration"}})
	listed := authority(g.decode[0])
	added := testrig.StartInstance(t, vllmsim.DefaultConfig(), "")
	g.decode = append(g.decode, added)

	a, b := g.talk("a"), g.talk("b")
	a.expect(t, "first_turn", listed)
	end := a.begin(t, g.decode[0])
	g.operates(t, http.MethodPost, "/admin/instances", object{"role": config.RoleDecode, "url": added.URL(), "name": "added"}, http.StatusOK)
	b.expect(t, "first_turn", "added") // at once: the other one is busy
	b.expect(t, hit, "added")
	end(hit)
	gauges := func() int { // of the added instance
		return strings.Count(g.scrapedText(t), "\ncarryover_pinned_tokens{instance=\"added\"") + strings.Count(g.scrapedText(t), "\ncarryover_instance_state{instance=\"added\"")
	}
	if gauges() < 2 {
		t.Errorf("state and pins of the added instance are not told: %s", g.scrapedText(t))
	}

	g.drain(t, listed, "drain")
	a.expect(t, whatever, "added") // a hit, or instance_gone: what a drained instance holds is read until it is released, within 250 ms
	for i := range 3 {
		g.talk("during-"+string(rune('a'+i))).expect(t, "first_turn", "added")
	}
	if got := g.state(t, listed); got != "draining" {
		t.Errorf("state of the drained instance %q, want draining", got)
	}
	g.drain(t, listed, "undrain")

	end = b.begin(t, added)
	g.operates(t, http.MethodDelete, "/admin/instances/decode/added", nil, http.StatusOK)
	if got := g.state(t, "added"); got != "draining" {
		t.Errorf("state of the removed instance under a stream %q, want draining", got)
	}
	a.expect(t, "instance_gone", listed)
	a.expect(t, hit, listed)
	end(hit)
	g.awaitDrained(t)
	if !testrig.Eventually(func() bool { return gauges() == 0 }) {
		t.Error("there are still gauges of the instance that was removed")
	}
	if got := g.state(t, "added"); got != "" {
		t.Errorf("state of the removed instance after its last turn %q, want none", got)
	}
	b.expect(t, "instance_gone", listed)
	b.expect(t, hit, listed)
	g.operates(t, http.MethodDelete, "/admin/instances/decode/added", nil, http.StatusNotFound)
	g.operates(t, http.MethodDelete, "/admin/instances/decode/"+listed, nil, http.StatusNotFound) // of the configuration
	g.verify(t, pins{})
}

// What names this program itself would have its turns run in a circle, and of what is said twice, either could be meant.
func TestFleet_RegistrationOfItselfOrTwiceIsRefused(t *testing.T) {
	t.Parallel()
	g := startChanging(t, rigConfig{flags: []string{"--discovery-registration"}})
	port := g.base[strings.LastIndexByte(g.base, ':'):]
	for name, body := range map[string]string{
		"itself":                   `{"role":"decode","url":"` + g.base + `"}`,
		"itself by name":           `{"role":"prefill","url":"http://localhost` + port + `"}`,
		"itself as no address":     `{"role":"prefill","url":"http://0.0.0.0` + port + `"}`,
		"its admin listener":       `{"role":"decode","url":"` + g.operators + `"}`,
		"url twice":                `{"role":"decode","url":"http://10.0.0.7:8200","url":"http://10.0.0.8:8200"}`,
		"role twice, escaped":      `{"role":"decode","url":"http://10.0.0.7:8200","r\u006fle":"prefill"}`,
		"role twice, as equal":     `{"role":"decode","url":"http://10.0.0.7:8200","role":"decode"}`,
		"role in another spelling": `{"role":"decode","url":"http://10.0.0.7:8200","ROLE":"prefill"}`,
		"two bodies":               `{"role":"decode","url":"http://10.0.0.7:8200"}{"role":"decode","url":"http://10.0.0.8:8200"}`,
	} {
		status, answer := askBare(t, g.client, http.MethodPost, g.operators+"/admin/instances", []byte(body))
		if status != http.StatusBadRequest || gjson.Get(answer, "error.code").String() != "invalid_instance" {
			t.Errorf("%s: %d %s, want 400", name, status, answer)
		}
	}
	if n := g.operates(t, http.MethodGet, "/admin/instances", nil, http.StatusOK).Get("instances.#").Int(); n != 2 {
		t.Errorf("%d instances, want those of the configuration", n)
	}
	other := testrig.StartInstance(t, vllmsim.DefaultConfig(), "") // of this machine, and not the program
	g.operates(t, http.MethodPost, "/admin/instances", object{"role": config.RoleDecode, "url": other.URL()}, http.StatusOK)
}
