package kubernetes

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"carryover/upstream/discovery/kubernetes/kubetest"
)

func TestSource_WaitsLongerAfterEachFailure(t *testing.T) {
	inCluster(t, before(onePair), func(w *world) {
		w.setAway(true)
		w.api.Cut()
		cut := time.Now()
		w.pass(5 * time.Minute)
		w.want("p:p-1 d:d-1")
		before := cut
		for i, longest := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
			longest *= time.Second
			got := w.dials[i].Sub(before)
			if got <= longest/2-time.Millisecond || got > longest {
				t.Errorf("attempt %d came after %v, want more than half of %v and no more than it", i+1, got, longest)
			}
			before = w.dials[i]
		}
		w.setAway(false)
		w.pass(longestWait)
		w.play("put p-2")
		w.want("p:p-1 p:p-2 d:d-1")
		w.api.Cut()
		w.asked()
		w.pass(firstWait)
		w.wantAsked("watch@1003") // an event has come, so the waits begin anew
	})
}

func TestSource_ListsWhereItMayNotWatch(t *testing.T) {
	inCluster(t, before(onePair+"; forbid watch"), func(w *world) {
		w.play("logged needs_verb=watch; put p-2; wait 1s; want p:p-1 p:p-2 d:d-1")
		w.asked()
		w.pass(10 * time.Minute)
		if got := strings.Count(w.asked(), "list"); got < 20 || got > 45 {
			t.Errorf("%d lists in ten minutes, want one each 15 to 30 s", got)
		}
	})
}

func TestSource_UsesNoProxyOfTheEnvironment(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	c := newClient(valid(), "serving")
	c.cfg.CAFile = t.TempDir() + "/ca.crt"
	must(t, os.WriteFile(c.cfg.CAFile, kubetest.Start(t, kubetest.NewPipe()).ReplaceCA(), 0o600))
	made, err := c.connect()
	must(t, err)
	if made.Transport.(*http.Transport).Proxy != nil {
		t.Error("the transport asks the environment for a proxy")
	}
}
