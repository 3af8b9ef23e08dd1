package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

// demonstrated runs the demo once and returns the rows of its table.
func demonstrated(t *testing.T, args ...string) (rows [][]string) {
	t.Helper()
	code, stdout, stderr := runCommand(t, append([]string{"demo", "--once", "--port", "0", "--turns", "3"}, args...)...)
	if code != exitOK {
		t.Errorf("demo %q: exit code %d\n%s\n%s", args, code, stdout, stderr)
	}
	for line := range strings.Lines(stdout) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == strconv.Itoa(len(rows)+1) {
			rows = append(rows, fields)
		}
	}
	if len(rows) != 3 {
		t.Fatalf("demo %q: %d turns, want 3\n%s\n%s", args, len(rows), stdout, stderr)
	}
	return rows
}

func TestDemo_EveryConnector(t *testing.T) {
	for _, name := range demoConnectors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := demonstrated(t, "--connector", name)
			for _, row := range rows {
				last := row[len(row)-1]
				if (ConnectorConfig{Name: name}).reusesKV() {
					if row[0] != "1" && !strings.HasPrefix(last, "hit;") {
						t.Errorf("turn %s: %q, want a hit", row[0], last)
					}
					continue
				}
				if !strings.HasPrefix(last, "prefill_decode") {
					t.Errorf("turn %s went %q", row[0], last)
				}
				if first := rows[0][len(row)-2]; row[len(row)-2] != first {
					t.Errorf("turn %s is served by %s, the first by %s: its history is in no cache", row[0], row[len(row)-2], first)
				}
				// turn, prompt tokens, TTFT with its unit, had, loaded, computed
				prompt, _ := strconv.Atoi(row[1])
				loaded, _ := strconv.Atoi(row[5])
				computed, _ := strconv.Atoi(row[6])
				if loaded == 0 || computed >= prompt {
					t.Errorf("turn %s: decode loaded %d of %d tokens and computed %d", row[0], loaded, prompt, computed)
				}
			}
		})
	}
}

func TestDemo_RefusesWhatItCannotShow(t *testing.T) {
	for args, want := range map[string]string{
		"--connector none": "carryover: demo --connector none: want one of nixl, multi",
		"--turns 1":        "carryover: demo needs --turns of at least 2",
	} {
		if code, _, stderr := runCommand(t, append([]string{"demo", "--once", "--port", "0"}, strings.Fields(args)...)...); code != exitUsage || !strings.HasPrefix(stderr, want) {
			t.Errorf("demo %s: exit code %d, %q", args, code, stderr)
		}
	}
}

// TestDemo_FailsIfTurnsGoAnotherWay: --once is what a script goes by.
func TestDemo_FailsIfTurnsGoAnotherWay(t *testing.T) {
	o := demoOptions{host: "127.0.0.1", turns: 2, once: true, prefills: 1, decodes: 1, connector: connectorNIXL, adminListen: adminOff}
	for name, spoil := range map[string]func(*Config){
		"decode alone": func(c *Config) { c.Routing.DisaggThreshold = 1 << 20 },
		"no reuse":     func(c *Config) { c.Proof.ReuseMinTokens = 1 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := startDeployment(o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			spoil(&d.settings)
			want := map[string]string{"decode alone": "2 turns that did not", "no reuse": "1 turns that did not"}[name]
			if err := d.present(t.Context(), o, io.Discard, io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// The table ends with one sentence: what was saved, on which engines, and that these are simulated.
func TestDemo_EndsItsTableWithWhatWasSaved(t *testing.T) {
	code, stdout, stderr := runCommand(t, "demo", "--once", "--port", "0", "--admin-listen", "off", "--turns", "3")
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	read, prompt := 0, 0
	for line := range strings.Lines(stdout) {
		if fields := strings.Fields(line); len(fields) > 7 && (fields[0] == "2" || fields[0] == "3") {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			prompt, read = prompt+n, read+reuseCount(fields[len(fields)-1], "read=")
		}
	}
	want := fmt.Sprintf("In 2 later turns prefill read %d of %d prompt tokens (%d %%) from decode, which it would have computed, on 2 prefill and 2 decode engines; these are simulated, and so are the times.",
		read, prompt, 100*read/max(prompt, 1))
	if read == 0 || strings.Count(stdout, want) != 1 {
		t.Errorf("want %q once in\n%s", want, stdout)
	}
}
