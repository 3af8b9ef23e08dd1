package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// patience bounds each wait. It is long because machines that test are busy.
const patience = 90 * time.Second

// chromium is a browser with a profile of its own. Commands and events are JSON on two pipes, each ended by a zero
// (--remote-debugging-pipe), as the DevTools protocol describes them.
type chromium struct {
	commands io.Writer

	mu      sync.Mutex // guards the rest, and writing
	sent    int
	answers map[int]chan answer
	tabs    map[string]*tab // by id
	ended   error
}

// answer is what became of a command.
type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// message is what the browser sends.
type message struct {
	ID        int
	SessionID string `json:"sessionId"`
	Method    string
	Params    json.RawMessage
	answer
}

// startChromium starts a browser for the length of the test. It knows no host but this machine.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: scripts/need-chromium.sh installs it", err)
	}
	commandsOut, commandsIn, err := os.Pipe()
	must(t, err)
	eventsOut, eventsIn, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir(), "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-extensions", "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "about:blank")
	cmd.Env = append(os.Environ(), "TZ=UTC")
	cmd.ExtraFiles = []*os.File{commandsOut, eventsIn} // its 3 and 4
	must(t, cmd.Start())
	_ = commandsOut.Close()
	_ = eventsIn.Close()
	c := &chromium{commands: commandsIn, answers: map[int]chan answer{}, tabs: map[string]*tab{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(eventsOut)
	}()
	t.Cleanup(func() {
		_, _ = c.do("", "Browser.close", nil) // the pipe ends instead of an answer, or after it
		<-read
		_ = cmd.Wait()
		_ = commandsIn.Close()
		_ = eventsOut.Close()
	})
	return c
}

// read hands out answers and events until the browser ends.
func (c *chromium) read(events io.Reader) {
	lines := bufio.NewReaderSize(events, 1<<20)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended = fmt.Errorf("the browser has ended: %w", err)
			for id, waits := range c.answers {
				delete(c.answers, id)
				close(waits)
			}
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			panic(err) // the browser speaks another protocol
		}
		c.mu.Lock()
		waits, of := c.answers[m.ID], c.tabs[m.SessionID]
		delete(c.answers, m.ID)
		c.mu.Unlock()
		switch {
		case m.ID != 0 && waits != nil:
			waits <- m.answer
		case m.ID == 0 && of != nil:
			of.heard(m.Method, m.Params)
		}
	}
}

// do has the browser, or a tab of it, do something, and returns the result.
func (c *chromium) do(tab, method string, params any) (json.RawMessage, error) {
	waits := make(chan answer, 1)
	if err := c.send(tab, method, params, waits); err != nil {
		return nil, err
	}
	select {
	case a, ok := <-waits:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: the browser has ended", method)
		case a.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return a.Result, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("%s: no answer", method)
	}
}

// send sends a command whose answer goes to waits, or with nil to nobody.
func (c *chromium) send(tab, method string, params any, waits chan answer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	c.sent++
	command := map[string]any{"id": c.sent, "method": method}
	if params != nil {
		command["params"] = params
	}
	if tab != "" {
		command["sessionId"] = tab
	}
	text, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if waits != nil {
		c.answers[c.sent] = waits
	}
	_, err = c.commands.Write(append(text, 0))
	return err
}
