package facts

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream/body"
)

func TestAskLimit_GrowsWithThePrompt(t *testing.T) {
	for _, row := range []struct {
		bytes int
		want  time.Duration
	}{{0, 2 * time.Second}, {4 << 10, 3 * time.Second}, {28_000, 8835937500}, {112 << 10, 30 * time.Second}, {1 << 30, 30 * time.Second}} {
		if got := askLimit(2*time.Second, row.bytes); got != row.want {
			t.Errorf("%d bytes: %v, want %v", row.bytes, got, row.want)
		}
	}
}

// A step of a late is a prompt that is asked for after some time, and read in time or not.
type lateStep struct {
	after  time.Duration
	bytes  int
	spared bool
	inTime bool
}

func TestLate(t *testing.T) {
	const short, long, longer = 1 << 10, 20 << 10, 30 << 10
	for name, steps := range map[string][]lateStep{
		"a long one, and the pause":     {{0, long, false, false}, {0, long, true, false}, {9 * time.Second, longer, true, false}, {time.Second, long, false, true}, {0, long, false, true}},
		"one that is shorter":           {{0, long, false, false}, {0, short, false, true}, {0, long, true, false}},
		"late again":                    {{0, long, false, false}, {10 * time.Second, long, false, false}, {19 * time.Second, long, true, false}, {time.Second, long, false, false}, {39 * time.Second, long, true, false}},
		"one tries it":                  {{0, long, false, false}, {10 * time.Second, long, false, false}, {0, long, true, false}},
		"a short one, for a moment":     {{0, short, false, false}, {0, short, false, true}, {0, long, false, true}},
		"a short one, again":            {{0, short, false, false}, {0, short, false, false}, {0, short, true, false}, {20 * time.Second, long, false, true}, {0, short, false, true}},
		"a longer one was read in time": {{0, long, false, false}, {10 * time.Second, longer, false, true}, {0, long, false, true}},
	} {
		var l late
		now, firsts := time.Now(), 0
		for i, step := range steps {
			now = now.Add(step.after)
			spared := l.spares(step.bytes, now)
			if spared != step.spared {
				t.Errorf("%s, step %d: spared %t, want %t", name, i, spared, step.spared)
			}
			if !spared && l.took(step.bytes, step.inTime, now) {
				firsts++
			}
		}
		if firsts != 1 {
			t.Errorf("%s: %d are the first that is late, want 1", name, firsts)
		}
	}
	l := late{}
	now := time.Now()
	for range 20 {
		l.spares(long, now)
		l.took(long, false, now)
		now = now.Add(lateMax)
	}
	if l.pause != lateMax {
		t.Errorf("it pauses for %v, want %v", l.pause, lateMax)
	}
	l.took(long, false, now)
	if l.spares(long, now) {
		t.Error("an old question that ends late makes the pause longer")
	}
	if l.spares(long, now.Add(lateFirst)) {
		t.Error("a question whose client has left is the last for ever")
	}
}

// An engine that does not tokenise a long prompt costs one turn its limit, and no other while it rests. The log says it once.
func TestPrompts_ALateEngineIsSpared(t *testing.T) {
	r := newRig(t)
	var log bytes.Buffer
	r.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var asked atomic.Int64
	var well atomic.Bool
	all := r.incarnationOf(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, q.Body) // else the server does not see that its client leaves
		if !well.Load() {
			<-q.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"count":2,"tokens":[1,2]}`))
	})
	long := mustParse(t, body.Text, `{"model":"m","prompt":"`+strings.Repeat("x", 20<<10)+`"}`)
	well.Store(true)
	if _, err := all.Prompts.ReadSoon(t.Context(), long, ""); err != nil { // a connection is open from now on
		t.Fatal(err)
	}
	well.Store(false)
	r.AskLimit = time.Millisecond
	for range 3 {
		if _, err := all.Prompts.ReadSoon(t.Context(), long, ""); err == nil {
			t.Fatal("it was told")
		}
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("it was asked %d times more, want once", n-1)
	}
	if _, err := all.Prompts.ReadSoon(t.Context(), long, ""); !errors.Is(err, ErrLate) {
		t.Errorf("got %v, want that it is late", err)
	}
	well.Store(true)
	r.AskLimit = time.Minute
	if _, err := all.Prompts.Read(t.Context(), long, ""); err != nil {
		t.Errorf("who can't do without is not told: %v", err)
	}
	if prompt, err := all.Prompts.ReadSoon(t.Context(), long, ""); err != nil || len(prompt.IDs) != 2 {
		t.Errorf("an answer ends the pause: got %v, %v", prompt.IDs, err)
	}
	if n := strings.Count(log.String(), "engine is late with the ids"); n != 1 || !strings.Contains(log.String(), "advice=") {
		t.Errorf("%d warnings; the log has\n%s", n, log.String())
	}
}
