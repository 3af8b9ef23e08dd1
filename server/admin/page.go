package admin

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"time"

	"carryover/server/events"
	"carryover/server/journal"
)

// pageFiles are sent to browsers as they are.
//
//go:embed page
var pageFiles embed.FS

// contentPolicy lets the page load its own files and send requests to this listener, and nothing else. Text can't become markup or script:
// that would need a policy of trusted types, which the page may not create.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; frame-ancestors 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

type pageFile struct {
	name, kind, tag string
	text            []byte
}

func newPage() http.Handler {
	files := map[string]pageFile{}
	entries, err := pageFiles.ReadDir("page")
	if err != nil {
		panic(err) // can't happen: the folder is embedded in the program
	}
	for _, entry := range entries {
		text, err := pageFiles.ReadFile(path.Join("page", entry.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		files["/page/"+entry.Name()] = pageFile{entry.Name(), kindOf(entry.Name()), `"` + hex.EncodeToString(sum[:8]) + `"`, text}
	}
	files["/"] = files["/page/index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, ok := files[r.URL.Path]
		if !ok {
			refuse(w, http.StatusNotFound, "not_found", "The page has no such file.")
			return
		}
		header := w.Header()
		header.Set("Content-Type", file.kind)
		header.Set("Content-Security-Policy", contentPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache") // the next version of the program may have another page
		header.Set("ETag", file.tag)
		http.ServeContent(w, r, file.name, time.Time{}, bytes.NewReader(file.text))
	})
}

// kindOf returns the media type of a file. The machine's own tables may give .js a type that browsers do not run.
func kindOf(name string) string {
	switch {
	case strings.HasSuffix(name, ".js"):
		return "text/javascript; charset=utf-8"
	case strings.HasSuffix(name, ".css"):
		return "text/css; charset=utf-8"
	}
	return "text/html; charset=utf-8"
}

const (
	maxViewers = 16 // viewers at the same time
	// maxRecords is as many records as the page shows. If more turns end between two events, only the newest are sent; totals count all.
	maxRecords  = 200
	viewerLimit = 5 * time.Second
)

// snapshot is one event of the live data: the current state, and what has happened since the previous event.
type snapshot struct {
	Now       time.Time          `json:"now"`
	Instances []instance         `json:"instances"`
	Ready     string             `json:"ready"`             // the word of /readyz
	Why       string             `json:"why,omitempty"`     // why that is not "ready"
	Identity  *Identity          `json:"program,omitempty"` // in the first event
	Open      int                `json:"open_turns"`
	Queue     waiting            `json:"queue"`
	Totals    journal.Totals     `json:"totals"`
	Bounds    []float64          `json:"bounds_ms"`        // bounds of the buckets of times in Totals
	Records   []journal.Numbered `json:"records"`          // of turns that have ended since, oldest first; in the first event the last turns
	Hour      []journal.Minute   `json:"hour"`             // minutes of the last hour in which turns ended since, oldest first
	Events    []events.Event     `json:"events,omitempty"` // the last, newest first; absent if they are the same as before
}

type waiting struct {
	ToBegin     int `json:"to_begin"`
	ForInstance int `json:"for_instance"`
}

// live sends an event a second (server-sent events) until the viewer leaves, or fails to receive one in time. Each event costs as much as a
// GET of the instances; without viewers there is no cost.
func (a *admin) live(w http.ResponseWriter, r *http.Request) {
	select {
	case a.viewers <- struct{}{}:
		defer func() { <-a.viewers }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, "too_many_viewers", "Too many viewers. Close another page.")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	tick := time.NewTicker(a.LiveEvery)
	defer tick.Stop()
	control := http.NewResponseController(w)
	for told := (known{}); ; {
		event := a.snapshot(&told)
		if send(w, control, event) != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

type known struct {
	program       bool
	turns, events uint64    // how many
	minute        time.Time // the newest
}

func (a *admin) snapshot(to *known) snapshot {
	s := snapshot{Now: time.Now(), Instances: a.instances(), Open: a.State.Open(), Bounds: journal.Bounds()}
	s.Ready, s.Why = a.State.Ready()
	if !to.program {
		s.Identity, to.program = &a.State.Identity, true
	}
	s.Queue.ToBegin, s.Queue.ForInstance = a.State.Waiting()
	s.Records, s.Totals = a.Journal.Since(to.turns, maxRecords)
	to.turns = s.Totals.Turns
	s.Hour = a.Journal.Hour(to.minute)
	if n := len(s.Hour); n > 0 {
		to.minute = s.Hour[n-1].At
	}
	s.Events, to.events = a.Events.Newest(to.events)
	return s
}

// send sends an event at once, or fails. The listener's own time limit is for short answers, so each event gets its own.
func send(w http.ResponseWriter, control *http.ResponseController, event snapshot) error {
	text, err := json.Marshal(event) // on one line
	if err != nil {
		return err
	}
	if err := control.SetWriteDeadline(time.Now().Add(viewerLimit)); err != nil {
		return err
	}
	text = append(append([]byte("event: snapshot\ndata: "), text...), '\n', '\n')
	if _, err := w.Write(text); err != nil {
		return err
	}
	return control.Flush()
}

func (a *admin) events(w http.ResponseWriter, _ *http.Request) {
	last, _ := a.Events.Newest(0)
	answer(w, http.StatusOK, map[string][]events.Event{"events": append([]events.Event{}, last...)})
}
