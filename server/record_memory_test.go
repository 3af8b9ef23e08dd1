package server_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// Observers keep what a record says of a turn, thousands of them. Nothing of it may be a part of the answer's own text: a string of
// four letters that is cut out of an answer keeps all of it in memory.
func TestRecord_KeepsNothingOfTheAnswer(t *testing.T) {
	const answers, size = 8, 1 << 20
	r, all := recorded(t, setup{probeless: true})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools held
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	long := strings.Repeat("word ", size/5)
	before := heap()
	for n := range answers {
		r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
			answerJSON(w, strings.Replace(wholeAnswer(l), "Hello world", long, 1)+"}")
		})
		if p := r.send(ask(fmt.Sprint("c", n), false, "question")); p.status != http.StatusOK || len(p.body) < size {
			t.Fatalf("status %d, %d bytes", p.status, len(p.body))
		}
	}
	r.until(func() bool { return len(all()) == answers })
	if took := int64(heap()) - int64(before); took > answers*size/2 {
		t.Errorf("%d records keep %d KiB of the answers", answers, took>>10)
	}
	if got := all()[0].Answer.Finish; got != "stop" {
		t.Errorf("kept %q", got)
	}
}
