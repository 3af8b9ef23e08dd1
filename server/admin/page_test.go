package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/admin"
	"carryover/server/events"
	"carryover/server/journal"
	"carryover/server/record"
	"carryover/upstream"
)

// liveEvent is what the tests read of an event.
type liveEvent struct {
	Now       time.Time
	Instances []map[string]any
	Open      int `json:"open_turns"`
	Queue     struct {
		ToBegin     int `json:"to_begin"`
		ForInstance int `json:"for_instance"`
	}
	Ready   string
	Why     string
	Program *admin.Identity
	Totals  journal.Totals
	Bounds  []float64 `json:"bounds_ms"`
	Records []journal.Numbered
	Events  []events.Event
	Hour    []journal.Minute
}

// pipes is a listener in memory: each end of a connection waits for the other, and time stands still in a bubble of synctest meanwhile.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p <- far
	return near, nil
}

// listener is the admin listener, with the limits that cmd sets.
type listener struct {
	pipes
	deps    admin.Deps
	server  *http.Server
	streams chan struct{} // has a word for each request that has ended on our side
}

func startListener(t *testing.T, every, limit time.Duration) *listener {
	t.Helper()
	l := &listener{pipes: make(pipes), streams: make(chan struct{}, 64)}
	l.deps, _ = newDeps(t)
	l.deps.LiveEvery = every
	l.deps.Fleet.Set([]upstream.Instance{{Role: upstream.RoleDecode, Name: "d-1", BaseURL: "http://10.0.0.7:8200"}})
	handler := admin.New(l.deps)
	l.server = &http.Server{ReadTimeout: limit, WriteTimeout: limit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		l.streams <- struct{}{}
	})}
	served := make(chan error, 1)
	go func() { served <- l.server.Serve(l) }()
	t.Cleanup(func() {
		_ = l.server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l
}

// ended waits until a request has ended on our side.
func (l *listener) ended(t *testing.T) {
	t.Helper()
	select {
	case <-l.streams:
	case <-time.After(20 * time.Second):
		t.Fatal("the handler goes on")
	}
}

// turn lets a turn end.
func (l *listener) turn(id string, hit bool) {
	l.deps.Journal.Observe(&record.Turn{Turn: id, Asked: record.Asked{Model: "<b>m</b>"}, Reuse: record.Reuse{Hit: hit, Reason: record.ReasonFirstTurn}, Status: 200})
}

// viewer is one who looks.
type viewer struct {
	status int
	header http.Header
	body   io.ReadCloser
	lines  *bufio.Reader
	leave  func()
}

func (l *listener) look(t *testing.T) *viewer {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/admin/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: l.dial}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &viewer{resp.StatusCode, resp.Header, resp.Body, bufio.NewReader(resp.Body), leave}
}

// next reads an event.
func (v *viewer) next(t *testing.T) (e liveEvent) {
	t.Helper()
	text := ""
	for !strings.HasSuffix(text, "\n\n") {
		line, err := v.lines.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		text += line
	}
	data, ok := strings.CutPrefix(text, "event: snapshot\ndata: ")
	if !ok {
		t.Fatalf("no event: %q", text)
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return e
}

func turnsOf(e liveEvent) string {
	ids := []string{}
	for _, r := range e.Records {
		ids = append(ids, r.Turn)
	}
	return strings.Join(ids, " ")
}

func TestLive_TellsEachTurnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startListener(t, 10*time.Millisecond, time.Minute)
		l.turn("a", false)
		l.turn("b", true)
		v := l.look(t)
		if v.status != 200 || v.header.Get("Content-Type") != "text/event-stream" || v.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v", v.status, v.header)
		}
		e := v.next(t)
		if turnsOf(e) != "a b" || e.Totals.Turns != 2 || e.Totals.Hits != 1 || e.Records[1].Number != 2 || len(e.Bounds)+1 != len(e.Totals.TTFTHits.Counts) {
			t.Errorf("first event %+v", e)
		}
		if len(e.Hour) == 0 || e.Hour[0].Turns != 2 || e.Hour[0].Hits != 1 {
			t.Errorf("the last hour: %+v", e.Hour)
		}
		if e.Open != 5 || e.Queue.ToBegin != 3 || e.Queue.ForInstance != 4 || len(e.Instances) != 1 || e.Now.IsZero() {
			t.Errorf("first event %+v", e)
		}
		if e.Ready != "no_instance" || e.Why != "no decode instance answers" || e.Program == nil || e.Program.Version != "v9" || e.Program.Replica != "host-1" || e.Program.Reasons["first_turn"] == "" {
			t.Errorf("first event: ready %q, %q, program %+v", e.Ready, e.Why, e.Program)
		}
		if d := e.Instances[0]; d["name"] != "d-1" || d["pinned_tokens"] != 77.0 || d["budget_tokens"] != 900.0 {
			t.Errorf("instance %v", d)
		}
		l.turn("c", false)
		told := ""
		for told == "" {
			e = v.next(t)
			told = turnsOf(e)
			if (told == "") != (e.Totals.Turns == 2) {
				t.Fatalf("totals and records are of two moments: %+v", e)
			}
		}
		if e.Program != nil {
			t.Error("the program is told again")
		}
		if told != "c" || e.Totals.Misses["first_turn"] != 2 {
			t.Errorf("then %q, totals %+v", told, e.Totals)
		}
		if told = turnsOf(v.next(t)); told != "" {
			t.Errorf("told again: %q", told)
		}
	})
}

func TestLive_AnEventIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startListener(t, time.Minute, time.Minute)
		for range 1000 {
			l.turn("x", true)
		}
		if e := l.look(t).next(t); len(e.Records) != 200 || e.Records[199].Number != 1000 || e.Totals.Hits != 1000 {
			t.Errorf("%d records, totals %+v", len(e.Records), e.Totals)
		}
	})
}

// The limits of short answers end neither the sending nor, through net/http's own reading, the request.
func TestLive_OutlastsTheListenersTimeLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startListener(t, 20*time.Millisecond, 1500*time.Millisecond)
		v := l.look(t)
		began := v.next(t).Now
		for v.next(t).Now.Sub(began) < 3*time.Second {
		}
	})
}

func TestLive_ViewersAreBoundedAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startListener(t, 10*time.Millisecond, time.Minute)
		viewers := []*viewer{}
		for range 16 {
			v := l.look(t)
			v.next(t)
			viewers = append(viewers, v)
		}
		late := l.look(t)
		if body, err := io.ReadAll(late.body); err != nil || late.status != 503 || late.header.Get("Retry-After") == "" || !strings.Contains(string(body), "too_many_viewers") {
			t.Fatalf("the 17th: %d %s, %v", late.status, body, err)
		}
		l.ended(t) // the 17th
		viewers[3].leave()
		l.ended(t)
		if v := l.look(t); v.status != 200 {
			t.Errorf("after one has left: %d", v.status)
		}
	})
}

func TestLive_EndsWithTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startListener(t, time.Hour, time.Minute) // between two events
		v := l.look(t)
		v.next(t)
		if err := l.server.Close(); err != nil {
			t.Fatal(err)
		}
		l.ended(t)
		if _, err := v.lines.ReadByte(); err == nil {
			t.Error("something came after the end")
		}
	})
}

// One who does not read is left behind when an event has not gone out in time; others and turns are not held up.
func TestLive_SlowViewersAreLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startListener(t, 10*time.Millisecond, time.Minute)
		slow, _ := l.dial(t.Context(), "", "")
		defer slow.Close()
		if _, err := io.WriteString(slow, "GET /admin/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		other := l.look(t)
		began := other.next(t).Now
		l.turn("turn", true)
		after := func(d time.Duration) (e liveEvent) {
			for e.Now.Sub(began) < d {
				e = other.next(t)
			}
			return e
		}
		if e := after(4900 * time.Millisecond); e.Totals.Turns != 1 || len(l.streams) > 0 {
			t.Errorf("told of %d turns; %d are left behind too early", e.Totals.Turns, len(l.streams))
		}
		after(5100 * time.Millisecond)
		l.ended(t)
		other.next(t)
	})
}

// An event is sent when it has happened, with those before it, and not again.
func TestLive_TellsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startListener(t, 10*time.Millisecond, time.Minute)
		v := l.look(t)
		if e := v.next(t); e.Events != nil {
			t.Errorf("events before any: %v", e.Events)
		}
		drain := func(how string) {
			if status, body := ask(t, l.server.Handler, "POST", "/admin/instances/decode/d-1/"+how, ""); status != 200 {
				t.Fatalf("%s: %d %s", how, status, body)
			}
			l.ended(t)
		}
		next := func() []events.Event {
			for {
				if e := v.next(t); e.Events != nil {
					return e.Events
				}
			}
		}
		drain("drain")
		if got := next(); len(got) != 1 || got[0].Kind != events.Drain || !strings.HasPrefix(got[0].Text, "An operator drains decode d-1:") || got[0].At.IsZero() {
			t.Errorf("after a drain: %v", got)
		}
		if again := v.next(t).Events; again != nil {
			t.Errorf("told again: %v", again)
		}
		drain("undrain")
		if got := next(); len(got) != 2 || !strings.HasPrefix(got[0].Text, "An operator takes decode d-1 back:") {
			t.Errorf("after it was taken back: %v", got)
		}
		status, body := get(t, l.server.Handler, "/admin/events")
		if status != 200 || strings.Count(body, `"kind":"drain"`) != 2 {
			t.Errorf("as a list: %d %s", status, body)
		}
	})
}
