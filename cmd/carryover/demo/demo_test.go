package demo

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/command/commandtest"
	"carryover/cmd/carryover/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// demonstrated runs the demo once and returns what it prints, and the rows of its table.
func demonstrated(t *testing.T, args ...string) (stdout string, rows [][]string) {
	t.Helper()
	code, stdout, stderr := runCommand(t, append([]string{"demo", "--once", "--port", "0", "--turns", "3"}, args...)...)
	if code != command.ExitOK {
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
	return stdout, rows
}

func TestDemo_EveryConnector(t *testing.T) {
	t.Parallel()
	for _, name := range config.Connectors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, rows := demonstrated(t, "--connector", name)
			for _, row := range rows {
				last := row[len(row)-1]
				if (config.ConnectorConfig{Name: name}).ReusesKV() {
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
		if code, _, stderr := runCommand(t, append([]string{"demo", "--once", "--port", "0"}, strings.Fields(args)...)...); code != command.ExitUsage || !strings.HasPrefix(stderr, want) {
			t.Errorf("demo %s: exit code %d, %q", args, code, stderr)
		}
	}
}

// TestDemo_FailsIfTurnsGoAnotherWay: --once is what a script goes by.
func TestDemo_FailsIfTurnsGoAnotherWay(t *testing.T) {
	t.Parallel()
	o := Options{host: "127.0.0.1", turns: 2, once: true, Prefills: 1, Decodes: 1, Connector: config.ConnectorNIXL, adminListen: config.AdminOff}
	for want, spoil := range map[string]func(*config.Config){
		"2 turns that did not": func(c *config.Config) { c.Routing.DisaggThreshold = 1 << 20 }, // decode alone
		"1 turns that did not": func(c *config.Config) { c.Store.TTL = 1 },                     // no reuse
	} {
		t.Run(want, func(t *testing.T) {
			d, err := StartDeployment(o)
			must(t, err)
			defer d.Close()
			spoil(&d.Settings)
			if err := d.present(t.Context(), o, io.Discard, io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// reuseRow is a row of the table of a connector that reuses KV.
type reuseRow struct {
	prompt, reused, with, without int // tokens
	reuse                         string
}

// asReuse reads: turn, prompt tokens, reused tokens, computed with and without reuse, two times with their units, engines, X-KV-Reuse.
func asReuse(t *testing.T, fields []string) (row reuseRow) {
	t.Helper()
	if len(fields) != 12 {
		t.Fatalf("%q: want 12 fields", fields)
	}
	for i, to := range []*int{&row.prompt, &row.reused, &row.with, &row.without} {
		n, err := strconv.Atoi(fields[1+i])
		if err != nil {
			t.Fatalf("%q: %v", fields, err)
		}
		*to = n
	}
	row.reuse = fields[11]
	return row
}

// TestDemo_ShowsTheDefaults: what a newcomer sees is what the program does unless it is told otherwise.
func TestDemo_ShowsTheDefaults(t *testing.T) {
	d, err := StartDeployment(Options{Prefills: 1, Decodes: 1, Connector: config.ConnectorNIXL})
	must(t, err)
	defer d.Close()
	got, want := d.Settings, config.Default()
	got.Prefill, got.Decode = want.Prefill, want.Decode
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the demo has settings of its own:\n%+v\nthe defaults are\n%+v", got, want)
	}
}

// TestDemo_ShowsWhatWasReused: with the defaults, prefill has the prompts of earlier turns in its own cache and reads the answers from
// decode, by a ticket or, after a pause, by a hand-back. Each row tells how many tokens that were, and the last line their sum.
func TestDemo_ShowsWhatWasReused(t *testing.T) {
	t.Parallel()
	stdout, fields := demonstrated(t, "--admin-listen", "off", "--prefills", "1") // of two, load would choose
	var rows []reuseRow
	for _, row := range fields {
		rows = append(rows, asReuse(t, row))
	}
	if first := rows[0]; first.reuse != "miss;reason=first_turn" || first.reused != 0 || first.with != first.prompt || first.without != first.prompt {
		t.Errorf("the first turn: %+v", first)
	}
	var sum reuseRow
	for _, row := range rows[1:] {
		read := fmt.Sprintf(";read=%d;", row.reused)
		if row.reused < 64 || row.with >= row.without || !strings.HasPrefix(row.reuse, "hit;") || !strings.Contains(row.reuse, read) {
			t.Errorf("a later turn: %+v", row)
		}
		sum.prompt, sum.reused, sum.with, sum.without = sum.prompt+row.prompt, sum.reused+row.reused, sum.with+row.with, sum.without+row.without
	}
	if !strings.Contains(rows[2].reuse, ";proof=engine;") {
		t.Errorf("the turn after the pause: %+v", rows[2])
	}
	want := fmt.Sprintf("In 2 later turns prefill read %d of %d prompt tokens (%d %%) from decode, and computed %d in place of %d, on 1 prefill and 2 decode engines; these are simulated, and so are the times.",
		sum.reused, sum.prompt, 100*sum.reused/max(sum.prompt, 1), sum.with, sum.without)
	if strings.Count(stdout, want) != 1 {
		t.Errorf("want %q once in\n%s", want, stdout)
	}
}

func runCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return commandtest.Run(t, NewCommand(), args...)
}

var demoPageAt = regexp.MustCompile(`The page for operators: (http://127\.0\.0\.1:(\d+)/)\n`)

func TestDemo_ShowsThePage(t *testing.T) {
	o := Options{host: "127.0.0.1", turns: 2, once: true, Prefills: 1, Decodes: 1, Connector: config.ConnectorNIXL, adminListen: "127.0.0.1:0"}
	out, status := &printed{at: demoPageAt, base: make(chan string, 1)}, make(chan int, 1)
	go func() { // while the demo runs
		resp, err := http.Get(<-out.base)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	d, err := StartDeployment(o)
	must(t, err)
	defer d.Close()
	must(t, d.present(t.Context(), o, out, io.Discard))
	defer http.DefaultClient.CloseIdleConnections()
	if status := <-status; status != http.StatusOK {
		t.Errorf("the page answers %d: %s", status, out)
	}
}

func TestDemo_TakesAnotherPortUnlessOneWasAskedFor(t *testing.T) {
	if taken, err := net.Listen("tcp", config.AdminDefault); err == nil { // else it was taken before
		defer taken.Close()
	}
	o := Options{adminListen: config.AdminDefault}
	other, err := o.openAdmin(t.Context())
	if err != nil || other.Addr().String() == config.AdminDefault {
		t.Fatalf("listens at %v: %v", other, err)
	}
	defer other.Close()
	o.adminListen = config.AdminOff
	if none, err := o.openAdmin(t.Context()); none != nil || err != nil {
		t.Errorf("off: %v, %v", none, err)
	}
	once := []string{"demo", "--once", "--port", "0", "--prefills", "1", "--decodes", "1"}
	code, _, stderr := runCommand(t, append(once, "--admin-listen", config.AdminDefault)...)
	if code != command.ExitRuntime || !strings.Contains(stderr, "address already in use") {
		t.Errorf("the asked one is taken: exit code %d, %q", code, stderr)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	t.Setenv("CARRYOVER_PORT", port)
	code, _, stderr = runCommand(t, "demo", "--once", "--prefills", "1", "--decodes", "1")
	if code != command.ExitRuntime || !strings.Contains(stderr, "127.0.0.1:"+port+" is taken by another program: choose a port with --port (make demo PORT=…); port ") {
		t.Errorf("CARRYOVER_PORT is taken: exit code %d, %q", code, stderr)
	}
	for _, address := range []string{"0.0.0.0:9480", ":9480", "9480", "10.0.0.1:9480"} {
		code, _, stderr = runCommand(t, append(once, "--admin-listen", address)...)
		if code != command.ExitUsage || !strings.HasPrefix(stderr, "carryover: demo --admin-listen "+address) {
			t.Errorf("%s: exit code %d, %q", address, code, stderr)
		}
	}
}
