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

func TestSource_ReadsTheTokenAnew(t *testing.T) {
	inCluster(t, before(onePair), func(w *world) {
		w.api.RotateToken()
		w.pass(brief)
		w.api.End()
		w.wantAsked("list watch@1002 watch@1002") // neither refused
		fresh := w.api.RevokeToken()
		w.pass(brief)
		w.api.End()
		w.wantAsked("watch@1002")
		w.wantLog("401 Unauthorized")
		must(t, os.WriteFile(w.api.Path("token"), []byte(fresh+"\n"), 0o600))
		w.pass(firstWait)
		w.wantAsked("watch@1002")
		w.play("put p-2")
		w.want("p:p-1 p:p-2 d:d-1")
	})
}

func TestSource_WithoutATokenItAsksNothing(t *testing.T) {
	inCluster(t, func(api *kubetest.Server, cfg *Config) {
		before(onePair)(api, cfg)
		cfg.TokenFile += "-that-comes-later"
	}, func(w *world) {
		w.wantAsked("")
		w.wantLog("token of the service account")
		must(t, os.Rename(w.api.Path("token"), w.api.Path("token-that-comes-later")))
		w.pass(firstWait)
		w.want("p:p-1 d:d-1")
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

func TestSource_WaitsAsLongAsItIsAsked(t *testing.T) {
	for status, reason := range map[int]string{http.StatusTooManyRequests: "TooManyRequests", http.StatusServiceUnavailable: "ServiceUnavailable"} {
		t.Run(reason, func(t *testing.T) {
			inCluster(t, before(onePair), func(w *world) {
				w.api.Refuse(kubetest.Refusal{Status: status, Reason: reason, Header: map[string]string{"Retry-After": "7"}})
				w.pass(brief)
				w.api.End()
				w.asked()
				w.pass(7*time.Second - time.Millisecond)
				w.wantAsked("")
				w.pass(time.Millisecond)
				w.wantAsked("watch@1002") // its version is as good as it was
			})
		})
	}
}

func TestSource_ReadsTheCAAnew(t *testing.T) {
	inCluster(t, before(onePair), func(w *world) {
		ca := w.api.ReplaceCA()
		w.api.Cut()
		w.pass(5 * time.Second)
		w.wantAsked("list watch@1002")
		w.wantLog("failed to verify certificate")
		must(t, os.WriteFile(w.api.Path("ca.crt"), ca, 0o600))
		w.pass(longestWait)
		w.wantAsked("watch@1002")
	})
}

func TestSource_BelievesNoOtherCA(t *testing.T) {
	inCluster(t, func(api *kubetest.Server, cfg *Config) {
		before(onePair)(api, cfg)
		api.ReplaceCA()
	}, func(w *world) {
		w.pass(time.Minute)
		w.wantAsked("")
	})
}

func TestSource_BelievesNoOtherName(t *testing.T) {
	inCluster(t, func(api *kubetest.Server, cfg *Config) {
		before(onePair)(api, cfg)
		cfg.APIHost = "elsewhere.example"
	}, func(w *world) {
		w.pass(time.Minute)
		w.wantAsked("")
		w.wantLog("not elsewhere.example")
	})
}

func TestSource_FollowsNoRedirect(t *testing.T) {
	inCluster(t, func(api *kubetest.Server, cfg *Config) {
		before(onePair)(api, cfg)
		api.Refuse(kubetest.Refusal{Status: http.StatusTemporaryRedirect, Header: map[string]string{"Location": "https://elsewhere.example/"}})
	}, func(w *world) {
		w.wantAsked("list")
		w.wantLog("307 Temporary Redirect")
		w.pass(firstWait)
		w.want("p:p-1 d:d-1")
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
