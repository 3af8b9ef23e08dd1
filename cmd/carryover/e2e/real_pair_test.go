//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
)

// scripts is where the pair is started and ended, seen from this folder.
const scripts = "../../../scripts/vllm-cpu"

// bringUpLimit is more than `up` gives its two instances by itself.
const bringUpLimit = 6 * time.Minute

// realPair is a real vLLM prefill instance and a real decode instance on this machine.
type realPair struct {
	state           string            // the folder in which the scripts keep what concerns this pair
	flags           []string          // by which the scripts know it; none for that of NIXL
	settings        map[string]string // what the scripts say of it
	prefill, decode *engine
	client          *http.Client
}

// engine is one vLLM server of the pair.
type engine struct {
	role, url string
	client    *http.Client
}

// stateFolder is that of the scripts for the version of vLLM at hand; scripts/vllm-cpu/e2e names both.
func stateFolder() string {
	root, version := os.Getenv("CARRYOVER_VLLM_DIR"), os.Getenv("CARRYOVER_VLLM_VERSION")
	return filepath.Join(cmp.Or(root, "../../../.vllm-cpu"), cmp.Or(version, "0.33.0"))
}

// newPair finds the pair that scripts/vllm-cpu/up has started, and expects both of its instances to be healthy.
func newPair(t *testing.T) *realPair {
	t.Helper()
	p := findPair(t, stateFolder())
	for _, e := range []*engine{p.prefill, p.decode} {
		if !e.healthy(t) {
			t.Fatalf("%s on %q is not healthy; see scripts/vllm-cpu/logs", e.role, e.url)
		}
	}
	return p
}

// findPair reads what the scripts have noted about a pair.
func findPair(t *testing.T, state string, flags ...string) *realPair {
	t.Helper()
	env, err := os.ReadFile(filepath.Join(state, "env"))
	if err != nil {
		t.Fatalf("the pair is not up (scripts/vllm-cpu/up): %v", err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(env)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	// The engines close idle connections after 5 s; what the suite itself asks them must not run into that.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return &realPair{
		state:    state,
		flags:    flags,
		settings: values,
		client:   client,
		prefill:  &engine{role: config.RolePrefill, url: values["PREFILL_URL"], client: client},
		decode:   &engine{role: config.RoleDecode, url: values["DECODE_URL"], client: client},
	}
}

// kill ends an instance as a crash does: every process of its group at once.
func (p *realPair) kill(t *testing.T, role string) {
	t.Helper()
	p.signal(t, role, syscall.SIGKILL)
}

// signal sends a signal to every process of an instance.
func (p *realPair) signal(t *testing.T, role string, signal syscall.Signal) {
	t.Helper()
	noted, err := os.ReadFile(filepath.Join(p.state, "run", role+".pid"))
	noError(t, err)
	group, err := strconv.Atoi(strings.TrimSpace(string(noted)))
	if err != nil || group <= 1 {
		t.Fatalf("process group of %s: got %q (%v)", role, noted, err)
	}
	if err := syscall.Kill(-group, signal); err != nil {
		t.Fatalf("signal %s: %v", role, err)
	}
}

// start starts an instance that has ended, with more arguments than the usual ones; a bring-up that fails is tried once
// more. It returns how long it took.
func (p *realPair) start(t *testing.T, role string, args ...string) time.Duration {
	t.Helper()
	began := time.Now()
	command := []string{"--" + role + "-only"}
	if !plugged() {
		command = append(command, "--stock")
	}
	for _, arg := range args {
		command = append(command, "--"+role+"-arg", arg)
	}
	err := p.script(t, "up", command...)
	if err != nil {
		t.Logf("bring-up of %s is tried again: %v", role, err)
		noError(t, p.script(t, "down", role))
		err = p.script(t, "up", command...)
	}
	noError(t, err)
	return time.Since(began)
}

// script runs one of scripts/vllm-cpu for this pair; SIGTERM lets it clean up when the test ends first.
func (p *realPair) script(t *testing.T, name string, args ...string) error {
	t.Helper()
	return p.scriptIn(t.Context(), name, args...)
}

func (p *realPair) scriptIn(ctx context.Context, name string, args ...string) error {
	args = slices.Concat(p.flags, args)
	ctx, cancel := context.WithTimeout(ctx, bringUpLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(scripts, name), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output)
	}
	return nil
}

// alone asks prefill for what is right: see asked.lone.
func (p *realPair) alone(t *testing.T, a asked) told {
	t.Helper()
	return ask(t, p.client, p.prefill.url, a.lone())
}

func (e *engine) healthy(t *testing.T) bool {
	t.Helper()
	resp, err := e.client.Get(e.url + "/health")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// source is where a prompt token of an engine came from.
type source string

// The values of the label source of vllm:prompt_tokens_by_source_total.
const (
	computed source = "local_compute"
	cached   source = "local_cache_hit"
	external source = "external_kv_transfer"
)

// counters are what an engine has counted, read from its /metrics.
type counters struct {
	prompt   map[source]int
	pinned   int // blocks in use
	failed   int // transfers
	expired  int // requests whose blocks were not read in time
	requests int // that have ended
}

var (
	sourceLine  = regexp.MustCompile(`^vllm:prompt_tokens_by_source_total\{.*source="(\w+)".*\} (\S+)$`)
	plainLine   = regexp.MustCompile(`^(vllm:\w+)(?:\{.*\})? (\S+)$`)
	blocksLabel = regexp.MustCompile(`num_gpu_blocks="(\d+)"`)
)

// counted reads the counters of an engine.
func (e *engine) counted(t *testing.T) counters {
	t.Helper()
	resp, err := e.client.Get(e.url + "/metrics")
	if err != nil {
		t.Fatalf("metrics of %s: %v", e.role, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("metrics of %s: %v", e.role, err)
	}
	c := counters{prompt: map[source]int{}}
	usage, blocks := math.NaN(), 0
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if m := sourceLine.FindStringSubmatch(line); m != nil {
			c.prompt[source(m[1])] += int(number(m[2]))
		}
		if strings.HasPrefix(line, "vllm:cache_config_info{") {
			if m := blocksLabel.FindStringSubmatch(line); m != nil {
				blocks = int(number(m[1]))
			}
		}
		if m := plainLine.FindStringSubmatch(line); m != nil {
			switch m[1] {
			case "vllm:kv_cache_usage_perc":
				usage = number(m[2])
			case "vllm:nixl_num_failed_transfers_total":
				c.failed = int(number(m[2]))
			case "vllm:nixl_num_kv_expired_reqs_total":
				c.expired = int(number(m[2]))
			case "vllm:request_success_total":
				c.requests += int(number(m[2]))
			}
		}
	}
	if len(c.prompt) == 0 || math.IsNaN(usage) || blocks == 0 {
		t.Fatalf("metrics of %s: no prompt tokens by source, KV cache usage or number of blocks", e.role)
	}
	// One block is the null block, which vLLM does not count (v1/core/block_pool.py, get_usage).
	c.pinned = int(math.Round(usage * float64(blocks-1)))
	return c
}

// number reads a metric's value; what is none shows up as a wrong sum.
func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return value
}

// since is what an engine has counted beyond before, once its counters, which follow an answer by a moment, account for
// at least so many prompt tokens and stand still.
func (e *engine) since(t *testing.T, before counters, promptTokens int) map[source]int {
	t.Helper()
	previous := -1
	delta := map[source]int{}
	inTime(5*time.Second, func() bool {
		sum := 0
		for from, n := range e.counted(t).prompt {
			delta[from] = n - before.prompt[from]
			sum += delta[from]
		}
		still := sum == previous && sum >= promptTokens
		previous = sum
		return still
	})
	return delta
}

// inTime polls until a condition holds, and says whether it did in time. Asking an engine costs milliseconds of its one
// core, so it is not asked more often than needed.
func inTime(limit time.Duration, holds func() bool) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return true
		}
	}
	return holds()
}
