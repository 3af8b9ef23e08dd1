package demo

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

var demoPageAt = regexp.MustCompile(`The page for operators: (http://127\.0\.0\.1:(\d+)/)\n`)

// visited is what a demo prints. It looks at the page as soon as its address is there.
type visited struct {
	mu     sync.Mutex // guards text
	text   bytes.Buffer
	status chan int // of the page
}

func (v *visited) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at := demoPageAt.FindSubmatch(text); at != nil {
		url := string(at[1])
		go func() {
			resp, err := http.Get(url)
			if err != nil {
				v.status <- 0
				return
			}
			resp.Body.Close()
			v.status <- resp.StatusCode
		}()
	}
	return v.text.Write(text)
}

func TestDemo_ShowsThePage(t *testing.T) {
	o := Options{host: "127.0.0.1", turns: 2, once: true, Prefills: 1, Decodes: 1, Connector: config.ConnectorNIXL, adminListen: "127.0.0.1:0"}
	out := &visited{status: make(chan int, 1)}
	must(t, runDemo(t.Context(), o, out, io.Discard))
	defer http.DefaultClient.CloseIdleConnections()
	if !demoPageAt.MatchString(out.text.String()) {
		t.Fatalf("no page: %s", &out.text)
	}
	if status := <-out.status; status != http.StatusOK {
		t.Errorf("the page answers %d", status)
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
	if err != nil {
		t.Fatal(err)
	}
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
