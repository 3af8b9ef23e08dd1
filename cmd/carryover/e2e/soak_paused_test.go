package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// The process is stopped for 50 to 300 ms at a time, and runs for 20 to 200 ms in between.
const (
	pauseLeast, pauseMost = 50 * time.Millisecond, 300 * time.Millisecond
	runLeast, runMost     = 20 * time.Millisecond, 200 * time.Millisecond

	pausedConversations = 16 // with CARRYOVER_SOAK a twentieth of what it says
)

// Random conversations through a process that is stopped and continued all the time, with slow engines, slow clients,
// clients that leave, and images: whatever is concluded from how long something took, no answer is wrong and no block is
// read twice or after its time.
func TestSoakOfDoubts_PausedProcess(t *testing.T) {
	t.Parallel()
	conversations := soakSize(t, pausedConversations, doubtShare)
	const seed = uint64(100)
	d, process := startPaused(t, seed)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(soakAtOne)
	ended := make(chan struct{})
	pauses := make(chan int, 1) // one result, read once
	go func() { pauses <- pause(process, rand.New(rand.NewPCG(seed, 2)), ended) }()
	for n := range conversations {
		group.Go(func() error { return d.converse(ctx, newTalk(seed, n)) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	close(ended)
	stops := <-pauses
	d.stop()
	for id, n := range named(d.prefill) {
		if n > 1 {
			t.Errorf("the blocks of %s were named by %d legs, want one", id, n)
		}
	}
	d.verifyDoubts(t)
	t.Logf("seed %d: %d turns with %d pauses, %d of %d later turns hit, misses %v, ends %v",
		seed, conversations*soakTurns, stops, d.tally.hits, d.tally.turns, d.reasons, d.ended)
}

// startPaused runs the program as a process of its own, so that it can be stopped.
func startPaused(t *testing.T, seed uint64) (*doubting, *os.Process) {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Blocks, cfg.Seed, cfg.OutputTokenIDs = 1<<16, seed, true
	var kinds []doubt
	for _, kind := range doubts(t, "doubts") {
		if kind.Habit != "" || kind.Name == "slow events" {
			kinds = append(kinds, kind)
		}
	}
	d := &doubting{
		soak:  &soak{seed: seed, uses: newUses()},
		storm: &storm{kinds: kinds, draw: rand.New(rand.NewPCG(seed, 1)), calmAfter: 1 << 30},
		ended: map[string]int{},
	}
	r := &rig{
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		turns:  newTurnLog(), cfg: cfg,
	}
	flags := slices.Concat(testrig.Patient(), []string{"serve", "--host", "127.0.0.1", "--port", "0", "--admin-listen", "off", "--log-format", "json"})
	r.prefill, r.decode = startInstances(t, 2, cfg), startInstances(t, 2, cfg)
	flags, d.rig = append(flags, r.named()...), r
	d.storm.instances = map[string][]*vllmsim.Instance{config.RolePrefill: r.prefill, config.RoleDecode: r.decode}
	d.startAlone(t, cfg)
	return d, r.launch(t, flags)
}

// launch runs the test binary as the program. Stop ends it in order.
func (r *rig) launch(t *testing.T, flags []string) *os.Process {
	t.Helper()
	return r.launchAs(t, exec.Command(os.Args[0], flags...)) //nolint:noctx // it is stopped by a signal, so that its end can be judged
}

// launchAs is launch with a command that becomes the program.
func (r *rig) launchAs(t *testing.T, cmd *exec.Cmd) *os.Process {
	t.Helper()
	cmd.Env = []string{programVariable + "=1", "GOCOVERDIR=" + t.TempDir()} // the test binary may be built for coverage
	stderr, err := cmd.StderrPipe()
	noError(t, err)
	noError(t, cmd.Start())
	serving := make(chan string, 1) // it says so once
	read := make(chan struct{})
	go func() { // ends with the process
		defer close(read)
		r.turns.follow(stderr, serving)
	}()
	r.stop = sync.OnceFunc(func() {
		r.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself, which Wait tells
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended with %v", err)
		}
	})
	t.Cleanup(r.stop)
	select {
	case address := <-serving:
		r.base = "http://" + address
	case <-read:
		t.Fatal("the program ended at once")
	}
	return cmd.Process
}

// follow reads the lines of a log in JSON. What is none is the runtime's word on a crash or a data race.
func (l *turnLog) follow(log io.Reader, serving chan<- string) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rec := object{}
		if json.Unmarshal(lines.Bytes(), &rec) != nil || rec["panic"] != nil {
			l.mu.Lock()
			l.defects = append(l.defects, lines.Text())
			l.mu.Unlock()
			continue
		}
		values := map[string]string{}
		for key, value := range rec {
			values[key] = fmt.Sprint(value)
		}
		switch values["msg"] {
		case "serving":
			serving <- values["address"]
		case "turn":
			l.observe(logged(values))
		}
	}
}

// logged is what the line of a turn tells.
func logged(values map[string]string) *record.Turn {
	retries, _ := strconv.Atoi(values["retries"])
	r := &record.Turn{
		Turn: values["turn"], Stored: values["stored"], Retries: retries,
		Legs: []*record.Leg{{Role: upstream.RoleDecode, Instance: values["decode"]}},
	}
	if values["error"] != "" {
		r.Err = errors.New(values["error"])
	}
	return r
}

// pause stops and continues a process until all has ended, and returns how often.
func pause(process *os.Process, draw *rand.Rand, ended <-chan struct{}) (stops int) {
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(draw.Int64N(int64(most-least)))
	}
	for {
		select {
		case <-ended:
			return stops
		case <-time.After(between(runLeast, runMost)):
		}
		// A process that has ended by itself takes no signals, which its Wait tells.
		_ = process.Signal(syscall.SIGSTOP)
		<-time.After(between(pauseLeast, pauseMost))
		_ = process.Signal(syscall.SIGCONT)
		stops++
	}
}

// named counts the legs that named the blocks of each answer, among the last 512 requests that each instance has recorded.
func named(prefill []*vllmsim.Instance) map[string]int {
	count := map[string]int{}
	for _, instance := range prefill {
		for _, request := range instance.Requests() {
			if params := gjson.GetBytes(request.Body, "kv_transfer_params"); strings.HasSuffix(request.Path, "completions") && params.Get("remote_block_ids").IsArray() {
				count[params.Get("remote_request_id").String()]++
			}
		}
	}
	return count
}
