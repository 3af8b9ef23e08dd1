package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// engineKey is what the engine of clients' keys lets in.
const engineKey = "a good key"

// options are what suites ask of a deployment.
type options struct {
	context int  // how many tokens a prompt and its answer can have
	plugIn  bool // the engines have the plug-in without which streams of the Messages API leave nothing behind
	unnamed bool // the program reads no id that the suite's client may tell
}

// deployment is the program in front of a simulated pair, and what suites compare it with.
type deployment struct {
	binary string
	options
	log       *os.File
	processes []*process
	prefill   []string // the engines
	decode    string
	lone      string // an engine like them that nothing is handed to: it computes every prompt
	proxy     string
	admin     string // proxy's listener for operators, who read the turns that it has served
	nowhere   string // the program in front of engines that refuse connections
	keyed     string // the program in front of an engine that judges the clients' keys itself
}

// Prefill is picked in turn: one that has computed the history itself reads nothing of a ticket. The limits of operations are for a
// machine that is busy with other tests.
func (d *deployment) start(ctx context.Context) (err error) {
	serve := []string{
		"--host", "127.0.0.1", "--port", "0", "--log-format", "json", "--log-level", "debug",
		"--store-timeout", "5s", "--routing-prefill", "round_robin",
	}
	if d.unnamed {
		serve = append(serve, "--conversation-sources", "conversation_id")
	}
	engines := slices.Clone(serve)
	sim := []string{
		"sim", "--port", "0", "--max-model-len", strconv.Itoa(d.context), "--inter-token", "1ms", "--prefill-per-token", "20us", "--render",
		"--message-params=" + strconv.FormatBool(d.plugIn), "--output-token-ids=" + strconv.FormatBool(d.plugIn),
	}
	for _, role := range []string{"prefill", "prefill", "decode", "both"} {
		url, err := d.run(ctx, simURL, append(sim, "--role", role)...)
		if err != nil {
			return err
		}
		switch role {
		case "prefill":
			d.prefill = append(d.prefill, url)
		case "decode":
			d.decode = url
		case "both":
			d.lone = url
			continue
		}
		engines = append(engines, "--"+role, url)
	}
	address := func(line string) string { // the listener for operators comes first
		if url := saidAt(line, "serving operators"); url != "" {
			d.admin = url
		}
		return proxyURL(line)
	}
	if d.proxy, err = d.run(ctx, address, append(engines, "--admin-listen", "127.0.0.1:0")...); err != nil {
		return err
	}
	serve = append(serve, "--admin-listen", "off")
	if d.nowhere, err = d.run(ctx, proxyURL, append(serve, "--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.2:1")...); err != nil {
		return err
	}
	judge, err := d.run(ctx, simURL, "sim", "--port", "0", "--api-key", engineKey)
	if err != nil {
		return err
	}
	if d.keyed, err = d.run(ctx, proxyURL, append(serve, "--prefill", judge, "--decode", judge, "--forward-authorization")...); err != nil {
		return err
	}
	return until(ctx, "the program is ready", func() error { return get(ctx, d.proxy+"/readyz", nil) })
}

// environment is what suites are told.
func (d *deployment) environment() []string {
	return []string{
		"CARRYOVER_URL=" + d.proxy, "ADMIN_URL=" + d.admin, "NOWHERE_URL=" + d.nowhere, "KEYED_URL=" + d.keyed, "ENGINE_KEY=" + engineKey,
		"LONE_URL=" + d.lone, "DECODE_URL=" + d.decode, "PREFILL_URLS=" + strings.Join(d.prefill, " "),
	}
}

// stop ends every process, the last first.
func (d *deployment) stop() (err error) {
	for i := len(d.processes) - 1; i >= 0; i-- {
		err = errors.Join(err, d.processes[i].stop())
	}
	return err
}

// process is one child. It writes to the log, which is read for its address.
type process struct {
	cmd     *exec.Cmd
	log     *os.File
	address func(line string) string
	url     chan string // gets the address
	ended   chan error  // gets how the process ended, once it has

	mu   sync.Mutex // guards what follows
	line []byte
	told bool
}

// run starts the program and waits until it says where it serves.
func (d *deployment) run(ctx context.Context, address func(line string) string, args ...string) (string, error) {
	p := &process{cmd: exec.Command(d.binary, args...), log: d.log, address: address, url: make(chan string, 1), ended: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		return "", fmt.Errorf("start the program: %w", err)
	}
	d.processes = append(d.processes, p)
	go func() { p.ended <- p.cmd.Wait() }()
	select {
	case url := <-p.url:
		return url, nil
	case err := <-p.ended:
		p.ended <- err // for stop
		return "", fmt.Errorf("the program ends at its start, %s says why: %w", d.log.Name(), err)
	case <-time.After(30 * time.Second):
	case <-ctx.Done():
	}
	return "", fmt.Errorf("the program does not say where it serves: %s %s", d.binary, strings.Join(args, " "))
}

// Write implements io.Writer.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range b {
		if c != '\n' {
			p.line = append(p.line, c)
			continue
		}
		if url := p.address(string(p.line)); url != "" && !p.told {
			p.told = true
			p.url <- url
		}
		p.line = p.line[:0]
	}
	return p.log.Write(b)
}

// stop has the process drain, and waits for it.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end process %d: %w", p.cmd.Process.Pid, err)
	}
	kill := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := <-p.ended; err != nil {
		return fmt.Errorf("process %d ended badly: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

// simURL reads the address of a simulated instance.
func simURL(line string) string {
	_, url, _ := strings.Cut(line, "instance serves ")
	return url
}

// proxyURL reads the address of the program from its log.
func proxyURL(line string) string { return saidAt(line, "serving") }

// saidAt reads the address from a line of the program's log, if that is the one with the message.
func saidAt(line, message string) string {
	var said struct {
		Msg, Address string
		Admin        string `json:"admin_address"`
	}
	if json.Unmarshal(bytes.TrimSpace([]byte(line)), &said) != nil || said.Msg != message {
		return ""
	}
	return "http://" + said.Address + said.Admin
}

// get reads JSON into v, unless that is nil.
func get(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

// until asks again until what it waits for holds, for a minute.
func until(ctx context.Context, what string, holds func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, err)
		}
	}
}
