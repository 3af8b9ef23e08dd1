package page

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// binary is the program, as make build leaves it.
const binary = "../../bin/carryover"

// process is the program at work.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu   sync.Mutex // guards said
	said bytes.Buffer
}

// Write takes in what the process says.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

// start starts the program for the length of the test.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	// A test that is killed leaves no processes behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v: make build makes it", err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends it at once, as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// says waits until the process has said something, and returns its first group.
func (p *process) says(t *testing.T, pattern string) (found string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	said := ""
	if !eventually(func() bool {
		p.mu.Lock()
		said = p.said.String()
		p.mu.Unlock()
		match := wanted.FindStringSubmatch(said)
		select {
		case <-p.done:
			return true
		default:
		}
		if match != nil {
			found = match[1]
		}
		return match != nil
	}) || found == "" {
		t.Fatalf("%v does not say %s, but:\n%s", p.cmd.Args[1:], pattern, said)
	}
	return found
}

// system is a proxy in front of simulated instances.
type system struct {
	*process
	t    *testing.T
	base string  // of the proxy
	page string  // of the admin listener, with a slash at its end
	from string  // Authorization of requests to that, "" for none
	held float64 // how many turns a demo has held by itself; all of them have ended

	instances map[string]*process // by role, where they are processes of their own
}

// startDemo runs the demo, which has listened for operators when this returns. It may be in the middle of its conversation.
func startDemo(t *testing.T, admin string) *system {
	t.Helper()
	p := start(t, nil, "demo", "--port", "0", "--admin-listen", admin, "--turns", "4")
	return &system{process: p, t: t, page: p.says(t, `The page for operators: (\S+)`)}
}

// talked waits until the demo has held its conversation.
func (s *system) talked() *system {
	s.t.Helper()
	s.base = s.says(s.t, `Serving on (\S+) with`)
	ways, _ := s.counted()
	for _, n := range ways {
		s.held += n
	}
	return s
}

// openDemo opens the page of a demo that has held its conversation, and waits until it shows all turns.
func openDemo(t *testing.T) (*system, *tab) {
	t.Helper()
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	b.live()
	b.await("all turns are shown", lists(demo.held))
	return demo, b
}

// counts is a condition on the page: its figure says so many turns.
func counts(turns float64) string {
	return fmt.Sprintf(`document.querySelector("#figure-turns")?.textContent === "%g"`, turns)
}

// lists is a condition on the page: its table has so many turns.
func lists(turns float64) string {
	return fmt.Sprintf(`document.querySelectorAll("#turns-table tbody tr:not(.record)").length === %g`, turns)
}

// startServing runs the program in front of an instance of each role, as processes of their own that serve a model of this name. An empty token
// is none.
func startServing(t *testing.T, model, token string) *system {
	t.Helper()
	at, instances := map[string]string{}, map[string]*process{}
	for _, role := range []string{"prefill", "decode"} {
		instances[role] = start(t, nil, "sim", "--role", role, "--port", "0", "--model", model)
		at[role] = instances[role].says(t, `instance serves (\S+)`)
	}
	var env []string
	if token != "" {
		env = []string{"CARRYOVER_ADMIN_TOKEN=" + token}
	}
	p := start(t, env, "serve", "--host", "127.0.0.1", "--port", "0", "--admin-listen", "127.0.0.1:0",
		"--log-format", "text", "--prefill", at["prefill"], "--decode", at["decode"])
	s := &system{process: p, t: t, page: p.says(t, `page=(\S+)`), base: "http://" + p.says(t, `msg=serving address=(\S+)`), instances: instances}
	if token != "" {
		s.from = "Bearer " + token
	}
	return s
}

// turn sends a turn of a conversation and returns the answer's text. said are the messages before: question, answer, question …
func (s *system) turn(model, conversation string, said ...string) string {
	s.t.Helper()
	messages := []map[string]string{{"role": "system", "content": "You repeat."}}
	for i, text := range said {
		messages = append(messages, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": text})
	}
	body, err := json.Marshal(map[string]any{"model": model, "conversation_id": conversation, "max_tokens": 80, "messages": messages})
	must(s.t, err)
	resp, err := http.Post(s.base+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	must(s.t, err)
	defer resp.Body.Close()
	var told struct {
		Choices []struct{ Message struct{ Content string } }
	}
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	if err := json.Unmarshal(text, &told); err != nil || resp.StatusCode != http.StatusOK || len(told.Choices) != 1 {
		s.t.Fatalf("turn: %d %s, %v", resp.StatusCode, text, err)
	}
	return told.Choices[0].Message.Content
}

// get asks the admin listener.
func (s *system) get(path string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, s.page+path, nil)
	if err != nil {
		return nil, err
	}
	if s.from != "" {
		req.Header.Set("Authorization", s.from)
	}
	return (&http.Client{Timeout: patience}).Do(req)
}

// counted returns how many turns ended in each way, as the journal has it: the first event of the live data.
func (s *system) counted() (ways map[string]float64, saved float64) {
	s.t.Helper()
	resp, err := s.get("admin/live")
	must(s.t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("live data: %d, %v", resp.StatusCode, err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var event struct {
				Totals struct {
					Hits, Off        float64
					Prefixes, Misses map[string]float64
					EmptyHits        map[string]float64 `json:"empty_hits"`
					SavedTokens      float64            `json:"saved_tokens"`
				}
			}
			must(s.t, json.Unmarshal([]byte(data), &event))
			ways = map[string]float64{"hit": event.Totals.Hits, "off": event.Totals.Off}
			for outcome, by := range map[string]map[string]float64{"hit": event.Totals.EmptyHits, "prefix": event.Totals.Prefixes, "miss": event.Totals.Misses} {
				for reason, n := range by {
					ways[spoken(outcome+" "+reason)] = n
					if outcome == "hit" {
						ways["hit"] -= n
					}
				}
			}
			return ways, event.Totals.SavedTokens
		}
	}
}

// spoken is how the page writes words of closed sets.
func spoken(word string) string { return strings.ReplaceAll(word, "_", " ") }

// scraped returns the sums of a metric by outcome and reason, as Prometheus would have them.
func (s *system) scraped(metric string) map[string]float64 {
	s.t.Helper()
	resp, err := s.get("metrics")
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	sums := map[string]float64{}
	for _, sample := range regexp.MustCompile(`(?m)^`+metric+`(\{.*\})? (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		var way []string
		for _, label := range regexp.MustCompile(`(?:outcome|reason)="([^"]*)"`).FindAllStringSubmatch(sample[1], -1) {
			way = append(way, label[1])
		}
		n, err := strconv.ParseFloat(sample[2], 64)
		must(s.t, err)
		sums[spoken(strings.Join(way, " "))] += n
	}
	return sums
}

// awaitTurns waits until so many turns have ended, which is a moment after their clients have their answers.
func (s *system) awaitTurns(n float64) {
	s.t.Helper()
	sum := 0.0
	if !eventually(func() bool {
		ways, _ := s.counted()
		sum = 0
		for _, n := range ways {
			sum += n
		}
		return sum >= n
	}) {
		s.t.Fatalf("%g turns have ended, want %g", sum, n)
	}
}
