package e2e

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/cli"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// reloadable is the program with a configuration file that a test changes.
type reloadable struct {
	rig
	file      string
	operators string // base URL of the admin listener
	log       *addressLog
}

var operatorsAt = regexp.MustCompile(`msg="serving operators" admin_address=(\S+)`)

// startReloadable starts two instances of each role, and the program with a file that names the first of each.
func startReloadable(t *testing.T, flags ...string) *reloadable {
	t.Helper()
	r := &reloadable{file: filepath.Join(t.TempDir(), "carryover.yaml"), log: &addressLog{address: make(chan string, 1)}}
	r.client = &http.Client{Transport: &http.Transport{}}
	for range 2 {
		r.prefill = append(r.prefill, testrig.StartInstance(t, vllmsim.DefaultConfig(), ""))
		r.decode = append(r.decode, testrig.StartInstance(t, vllmsim.DefaultConfig(), ""))
	}
	r.write(t, 1, "")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1) // one exit code, read once
	go func() {
		ended <- cli.Run(ctx, slices.Concat([]string{"--config", r.file}, testrig.Patient(), flags), nil, io.Discard, r.log)
	}()
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		cancel()
		if code := <-ended; code != command.ExitOK {
			t.Errorf("exit code %d: %s", code, r.log)
		}
	})
	select {
	case address := <-r.log.address:
		r.base = "http://" + address
	case <-time.After(time.Minute):
		t.Fatalf("the program does not serve: %s", r.log)
	}
	found := operatorsAt.FindStringSubmatch(r.log.String())
	if found == nil {
		t.Fatalf("no admin listener: %s", r.log)
	}
	r.operators = "http://" + found[1]
	return r
}

// write writes the file with the first instances of each role, and what else it is to say.
func (r *reloadable) write(t *testing.T, instances int, more string) {
	t.Helper()
	text := "listen: {host: 127.0.0.1, port: 0}\nadmin: {listen: \"127.0.0.1:0\"}\n"
	for role, all := range map[string][]*vllmsim.Instance{config.RolePrefill: r.prefill, config.RoleDecode: r.decode} {
		text += role + ":\n"
		for _, instance := range all[:instances] {
			text += "  - {url: " + instance.URL() + "}\n"
		}
	}
	if err := os.WriteFile(r.file, []byte(text+more), 0o600); err != nil {
		t.Fatal(err)
	}
}

// operate asks the admin listener.
func (r *reloadable) operate(t *testing.T, method, path string) (int, string) {
	t.Helper()
	status, body := askBare(t, r.client, method, r.operators+path)
	return status, string(body)
}

// shown is how many instances the admin listener shows.
func (r *reloadable) shown(t *testing.T) int {
	t.Helper()
	_, body := r.operate(t, http.MethodGet, "/admin/instances")
	return strings.Count(body, `"role":`)
}

func TestReload_ChangesInstancesAndRefusesWhatItCannotChange(t *testing.T) {
	r := startReloadable(t)
	if got := r.shown(t); got != 2 {
		t.Fatalf("%d instances, want 2", got)
	}
	for name, tc := range map[string]struct{ more, why string }{
		"an unknown key":            {"decoder: []\n", "decoder"},
		"a bad value with its line": {"routing: {decode: best}\n", "carryover.yaml:"},
		"what takes a restart":      {"store: {max_tickets: 7}\n", "store.max_tickets"},
	} {
		t.Run(name, func(t *testing.T) {
			r.write(t, 2, tc.more)
			status, body := r.operate(t, http.MethodPost, "/admin/reload")
			if status != http.StatusUnprocessableEntity || !strings.Contains(body, tc.why) {
				t.Errorf("%d %s, want 422 that names %s", status, body, tc.why)
			}
			if got := r.shown(t); got != 2 {
				t.Errorf("%d instances after a refused reload, want 2", got)
			}
		})
	}
	r.write(t, 2, "routing: {prefill: round_robin, disagg_threshold: 100}\n")
	if status, body := r.operate(t, http.MethodPost, "/admin/reload"); status != http.StatusOK {
		t.Fatalf("reload: %d %s", status, body)
	}
	if got := r.shown(t); got != 4 {
		t.Errorf("%d instances after a reload, want 4", got)
	}
	status, events := r.operate(t, http.MethodGet, "/admin/events")
	before, refused, _ := strings.Cut(events, "The configuration was refused, and nothing has changed: ")
	if status != http.StatusOK || !strings.Contains(before, `"kind":"reload","text":"The configuration was read again and is in force; changed: `) || !strings.Contains(refused, "store.max_tickets") ||
		!strings.Contains(before, `prefill, decode, routing.prefill: \"round_robin\" instead of \"auto\", routing.disagg_threshold: \"100\" instead of \"0\"`) || !strings.Contains(before, "Instances were added: prefill ") {
		t.Errorf("events, newest first: %d %s", status, events)
	}
}

func TestCheckConfig_SaysInWordsWhatAConfigurationComesTo(t *testing.T) {
	var out, errs strings.Builder
	args := []string{"check-config", "--prefill", "http://p:1,http://q:1", "--decode-dns", "http://decode:8200", "--disagg-threshold", "512",
		"--prefill-failure", "error", "--max-per-tenant", "3", "--pinned-share", "0.25"}
	if code := cli.Run(t.Context(), args, nil, &out, &errs); code != command.ExitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for _, want := range []string{
		"prefill q:1 at http://q:1", "decode by DNS: http://decode:8200, asked every 10s", "fewer than 512 uncached prompt tokens",
		"a failed prefill leg is an error for the client", "per tenant 3", "pin more than 0.25", "127.0.0.1:9480, without a token",
		"routing.disagg_threshold", "no secret: tickets end with this process",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "localhost:8200") {
		t.Errorf("the decode instance that is there by default stayed beside DNS:\n%s", out.String())
	}
}

// A file that an editor is about to write, or that has lost its instances, must not have the program serve from the addresses that are there
// by default: it is refused as a whole.
func TestReload_WithoutInstancesIsRefused(t *testing.T) {
	r := startReloadable(t)
	r.write(t, 1, "limits: {max_per_tenant: 7}\n")
	if status, body := r.operate(t, http.MethodPost, "/admin/reload"); status != http.StatusOK {
		t.Fatalf("reload: %d %s", status, body)
	}
	serving := r.serving(t)
	whole, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	head := "listen: {host: 127.0.0.1, port: 0}\nadmin: {listen: \"127.0.0.1:0\"}\n"
	for name, text := range map[string]string{
		"empty": "", "blank": "\n  \n", "comments": "# prefill:\n", "null": "~\n", "no instances": head + "limits: {max_per_tenant: 8}\n",
		"no prefill": strings.Replace(string(whole), "prefill:", "discovery: {}\n#", 1), "no members": head + "prefill:\ndecode:\n", "empty lists": head + "prefill: []\ndecode: []\n",
	} {
		if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, body := r.operate(t, http.MethodPost, "/admin/reload")
		if status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s, want 422", name, status, body)
		}
		if now := r.serving(t); !slices.Equal(now, serving) {
			t.Errorf("%s: %v serve, want %v", name, now, serving)
		}
	}
	if err := os.WriteFile(r.file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, body := r.operate(t, http.MethodPost, "/admin/reload"); status != http.StatusOK {
		t.Errorf("the whole file again: %d %s", status, body)
	}
}
