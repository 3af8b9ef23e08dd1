package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What the engines take: a fast one computes 2,000 prompt tokens a second.
const (
	prefillPerToken  = 500 * time.Microsecond
	transferPerBlock = 200 * time.Microsecond
	interToken       = 25 * time.Millisecond
	maxNumSeqs       = 32
	kvTTL            = 480 * time.Second // of wall time, which the proxy counts in
)

func prefillSlowness() []float64 { return []float64{1, 1, 2, 4} }
func decodeSlowness() []float64  { return []float64{1, 1, 1.5, 2} }

// process is one child.
type process struct {
	name      string
	url       string
	arguments []string // that start it again at its address
	cmd       *exec.Cmd
}

// fleet is the processes of one run.
type fleet struct {
	options
	prefill, decode []*process
	proxy           *process
	log             turnLog
	dir             string
}

// turnLog is what the proxy says of its turns.
type turnLog struct {
	mu    sync.Mutex // guards lines
	lines map[string]turnLine
	done  chan struct{} // closed when the proxy has ended
}

// turnLine is the log line of a turn, as far as it is read.
type turnLine struct {
	Turn    string `json:"turn"`
	Prefill string `json:"prefill"`
	Decode  string `json:"decode"`
	Error   string `json:"error"`
}

func startFleet(ctx context.Context, o options, policy string) (*fleet, error) {
	f := &fleet{options: o, log: turnLog{lines: map[string]turnLine{}, done: make(chan struct{})}}
	if err := f.start(ctx, policy); err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, policy string) error {
	// The same secret in every run: where a conversation's affinity leads depends on it.
	var err error
	if f.dir, err = os.MkdirTemp("", "fleet-report"); err != nil {
		return err
	}
	secret := filepath.Join(f.dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("fleet-report ", 5)), 0o600); err != nil {
		return err
	}
	serve := []string{"serve", "--host", "127.0.0.1", "--port", "0", "--log-format", "json", "--secret-file", secret, "--shutdown-grace", "1s",
		"--routing-prefill", policy, "--routing-decode", policy}
	for _, role := range []struct {
		name     string
		slowness []float64
		into     *[]*process
	}{{"prefill", prefillSlowness(), &f.prefill}, {"decode", decodeSlowness(), &f.decode}} {
		for i, slowness := range role.slowness {
			p := &process{name: fmt.Sprintf("%s-%d", role.name, i+1), arguments: []string{"sim", "--role", role.name,
				"--slowness", fmt.Sprint(slowness), "--time-scale", fmt.Sprint(f.scale), "--max-num-seqs", strconv.Itoa(maxNumSeqs),
				"--kv-ttl", fmt.Sprint(time.Duration(float64(kvTTL) * f.scale)), "--prefill-per-token", fmt.Sprint(prefillPerToken),
				"--transfer-per-block", fmt.Sprint(transferPerBlock), "--inter-token", fmt.Sprint(interToken)}}
			*role.into = append(*role.into, p)
			if err := f.startSim(ctx, p, "0"); err != nil {
				return err
			}
			serve = append(serve, "--"+role.name, p.url)
		}
	}
	f.proxy = &process{name: "proxy", arguments: serve}
	return f.startProxy(ctx)
}

// startSim starts p, whose first line tells its address.
func (f *fleet) startSim(ctx context.Context, p *process, port string) error {
	cmd := exec.CommandContext(ctx, f.binary, append(p.arguments, "--port", port)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd = cmd
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), "serves ")
	if err != nil || !ok {
		return fmt.Errorf("%s says %q, want its address (%w)", p.name, line, err)
	}
	p.url = address
	return nil
}

// startProxy starts the proxy, whose log tells its address and then every turn.
func (f *fleet) startProxy(ctx context.Context) error {
	p := f.proxy
	cmd := exec.CommandContext(ctx, f.binary, p.arguments...)
	cmd.Env = append(os.Environ(), "CARRYOVER_ADMIN_LISTEN=off") // its port may be another proxy's
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the proxy: %w", err)
	}
	p.cmd = cmd
	address := make(chan string, 1) // room for the one address
	go f.log.read(stderr, address)
	select {
	case p.url = <-address:
	case <-f.log.done:
		return errors.New("the proxy ended before it served")
	case <-ctx.Done():
		return ctx.Err()
	}
	return awaitOK(ctx, p.url+"/readyz")
}

// read keeps the lines of turns until the proxy ends, and shows what is no log. It sends the address on.
func (l *turnLog) read(from io.Reader, address chan<- string) {
	defer close(l.done)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var kind struct {
			Message string `json:"msg"`
			Address string `json:"address"`
		}
		var line turnLine
		if json.Unmarshal(lines.Bytes(), &kind) != nil {
			fmt.Fprintln(os.Stderr, lines.Text())
			continue
		}
		switch kind.Message {
		case "serving":
			address <- "http://" + kind.Address
		case "turn":
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				fmt.Fprintln(os.Stderr, "line of a turn:", err)
				continue
			}
			l.mu.Lock()
			l.lines[line.Turn] = line
			l.mu.Unlock()
		}
	}
}

// replace ends instances as a crash does, and starts them again at their addresses two seconds of engine time later.
func (f *fleet) replace(ctx context.Context, list []*process) error {
	for _, p := range list {
		if err := p.cmd.Process.Kill(); err != nil {
			return fmt.Errorf("kill %s: %w", p.name, err)
		}
		_ = p.cmd.Wait() // says that it was killed
	}
	if err := sleep(ctx, 2*time.Second, f.scale); err != nil {
		return err
	}
	for _, p := range list {
		if err := f.startSim(ctx, p, p.url[strings.LastIndexByte(p.url, ':')+1:]); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the proxy first, so that it tells all of its turns.
func (f *fleet) stop() error {
	for _, p := range append([]*process{f.proxy}, append(f.prefill, f.decode...)...) {
		if p != nil && p.cmd != nil {
			_ = p.cmd.Process.Signal(os.Interrupt)
			if p == f.proxy {
				<-f.log.done // all of the pipe is read before Wait closes it
			}
			_ = p.cmd.Wait() // a child that was killed says so, and that is known
			p.cmd = nil
		}
	}
	return os.RemoveAll(f.dir)
}

// misread counts what the engines have read wrongly, and twice or too late.
func (f *fleet) misread(ctx context.Context) (corrupt, double int, err error) {
	for _, p := range append(f.prefill, f.decode...) {
		var s struct {
			CorruptReads int `json:"corrupt_reads"`
			Poisoned     int `json:"poisoned"`
			DoubleReads  int `json:"double_reads"`
			ExpiredReads int `json:"expired_reads"`
			UnknownReads int `json:"unknown_reads"`
		}
		if err := getJSON(ctx, p.url+"/_sim/stats", &s); err != nil {
			return 0, 0, err
		}
		corrupt += s.CorruptReads + s.Poisoned
		double += s.DoubleReads + s.ExpiredReads + s.UnknownReads
	}
	return corrupt, double, nil
}

func getJSON(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}

func awaitOK(ctx context.Context, url string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, ctx.Err())
		case <-tick.C:
		}
	}
}
