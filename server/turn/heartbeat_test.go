package turn

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/record"
	"carryover/upstream/body"
)

// Beats come at the interval, the first of them with the headers, and none behind the answer's beginning or behind a stop.
func TestHeartbeat_BeatsUntilTheAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		api  body.API
		then func(c *commitWriter)
		want string
	}{
		"chat":     {body.Chat, func(c *commitWriter) { _, _ = c.Write([]byte("answer")) }, ": heartbeat\n\n: heartbeat\n\nanswer"},
		"messages": {body.Messages, func(c *commitWriter) { c.stop() }, "event: ping\ndata: {\"type\": \"ping\"}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := httptest.NewRecorder()
				b := record.NewBuilder("id", record.Trace{}, time.Now())
				c := writerTo(w, time.Hour, time.Now(), &b)
				c.beat(row.api, 15*time.Second)
				<-time.After(15*time.Second - 1)
				synctest.Wait()
				c.mu.Lock()
				if c.beaten {
					t.Error("a beat came before the first interval was over")
				}
				c.mu.Unlock()
				<-time.After(16 * time.Second)
				synctest.Wait()
				c.stream = "text/event-stream"
				row.then(c)
				<-time.After(time.Hour)
				synctest.Wait()
				if w.Body.String() != row.want || w.Code != http.StatusOK || w.Result().Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
					t.Errorf("got %d %q %v, want %q", w.Code, w.Body, w.Result().Header, row.want)
				}
			})
		})
	}
}
