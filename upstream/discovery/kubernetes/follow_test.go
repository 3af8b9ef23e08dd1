package kubernetes

import (
	"context"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/discovery/kubernetes/kubetest"
)

func TestSource_PodsComeBecomeReadyAndGo(t *testing.T) {
	inCluster(t, onePair, func(w *world) {
		w.want("p:p-1 d:d-1")
		if got, want := w.last()[0], (upstream.Instance{Name: "p-1", BaseURL: "http://10.0.0.1:8000", Role: upstream.RolePrefill}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		starting := prefillPod("p-2", "")
		starting.Phase = "Pending"
		w.api.Put(starting)
		w.want("p:p-1 d:d-1")
		loading := prefillPod("p-2", "10.0.0.3")
		loading.NotReady = true
		w.api.Put(loading)
		w.want("p:p-1 d:d-1")
		if w.told() != 1 {
			t.Errorf("set was called %d times, want once: nothing has changed", w.told())
		}
		w.api.Put(prefillPod("p-2", "10.0.0.3"))
		w.want("p:p-1 p:p-2 d:d-1")
		ending := prefillPod("p-1", "10.0.0.1")
		ending.Terminating = true
		w.api.Put(ending)
		w.want("p:p-2 d:d-1")
		w.api.Delete("p-1")
		w.api.Delete("d-1")
		w.want("p:p-2")
		w.wantAsked("list watch@1002")
	})
}

func TestSource_AnEmptyClusterIsAListToo(t *testing.T) {
	inCluster(t, func(*kubetest.Server, *Config) {}, func(w *world) {
		w.wantCount(0, 1)
	})
}

func TestSource_PodsThatNoLongerMatchAreGone(t *testing.T) {
	inCluster(t, onePair, func(w *world) {
		w.api.Put(kubetest.Pod{Name: "p-1", IP: "10.0.0.1", Labels: map[string]string{"model": "canary"}})
		w.want("d:d-1")
		w.api.Put(decodePod("p-1", "10.0.0.1"))
		w.want("d:d-1 d:p-1")
	})
}

func TestSource_GoesOnFromTheLastVersionWhenAWatchEnds(t *testing.T) {
	inCluster(t, onePair, func(w *world) {
		w.api.Put(prefillPod("p-2", "10.0.0.3"))
		w.wantAsked("list watch@1002")
		w.api.End()
		w.wantAsked("watch@1003")
		w.pass(brief)
		w.api.Pass()
		w.api.Bookmark()
		w.wantAsked("")
		w.api.Compact()
		w.api.End()
		w.wantAsked("watch@1004") // without the bookmark this would be 1003, which is gone
		w.want("p:p-1 p:p-2 d:d-1")
	})
}

func TestSource_AsksForEventsOfASelectorWithBookmarksAndATime(t *testing.T) {
	inCluster(t, onePair, func(w *world) {
		requests := w.api.Requests()
		if len(requests) != 2 {
			t.Fatalf("got %d requests, want a list and a watch", len(requests))
		}
		for name, want := range map[string]string{"labelSelector": "model in (prefill,decode)", "limit": "500"} {
			if got := requests[0].Query[name]; len(got) != 1 || got[0] != want {
				t.Errorf("list: %s is %q, want %q", name, got, want)
			}
		}
		for name, want := range map[string]string{"labelSelector": "model in (prefill,decode)", "allowWatchBookmarks": "true"} {
			if got := requests[1].Query[name]; len(got) != 1 || got[0] != want {
				t.Errorf("watch: %s is %q, want %q", name, got, want)
			}
		}
		duration, err := time.ParseDuration(requests[1].Query["timeoutSeconds"][0] + "s")
		if err != nil || duration < 5*time.Minute || duration >= 10*time.Minute {
			t.Errorf("watch: timeoutSeconds is %v (%v), want five to ten minutes", duration, err)
		}
	})
}

func TestSource_ListsAgainWhenTheVersionIsForgotten(t *testing.T) {
	for name, prepare := range map[string]func(*kubetest.Server, *Config){
		"told by an event":  onePair,
		"told by an answer": func(api *kubetest.Server, cfg *Config) { onePair(api, cfg); api.AnswerGone() },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, prepare, func(w *world) {
				w.want("p:p-1 d:d-1")
				w.setAway(true)
				w.api.Cut()
				w.pass(time.Millisecond)
				w.api.Delete("p-1")
				w.api.Put(prefillPod("p-2", "10.0.0.3"), decodePod("d-2", "10.0.0.4"))
				w.api.Compact()
				w.setAway(false)
				w.want("p:p-1 d:d-1") // the last list stays meanwhile
				w.pass(firstWait)
				w.want("p:p-2 d:d-1 d:d-2")
				w.wantAsked("list watch@1002 watch@1002 list watch@1005")
				if w.told() != 2 {
					t.Errorf("set was called %d times, want twice: no list in between", w.told())
				}
			})
		})
	}
}

func TestSource_AForgottenVersionWhileWatchingIsListedAgainAtOnce(t *testing.T) {
	inCluster(t, onePair, func(w *world) {
		w.pass(brief)
		w.api.Pass()
		w.api.Compact()
		w.api.End()
		w.want("p:p-1 d:d-1")
		w.wantAsked("list watch@1002 watch@1002 list watch@1003")
	})
}

func TestSource_ListsAgainAfterAnErrorThatIsNotAboutTheVersion(t *testing.T) {
	inCluster(t, onePair, func(w *world) {
		w.api.Fail()
		w.pass(firstWait)
		w.wantAsked("list watch@1002 list watch@1002")
		w.wantLog("etcdserver: mvcc: something else")
	})
}

func TestSource_DoubtsAVersionOfWhichAWatchTellsNothing(t *testing.T) {
	inCluster(t, onePair, func(w *world) {
		w.pass(2 * shortestWatch) // the longest that a watch lasts
		if got := w.asked(); !strings.HasPrefix(got, "list watch@1002 list watch@1002") {
			t.Errorf("requests %q, want a list after the first watch", got)
		}
	})
}

func TestSource_AWatchThatEndsAtOnceIsNotAskedForInALoop(t *testing.T) {
	inCluster(t, onePair, func(w *world) {
		for range 3 {
			w.api.End()
			w.pass(0)
		}
		w.wantAsked("list watch@1002")
		w.wantLog("the watch ended at once")
		w.pass(firstWait)
		w.wantAsked("watch@1002")
		w.api.End()
		w.pass(firstWait / 2)
		w.wantAsked("") // the second wait is a second at least
		w.pass(2 * firstWait)
		w.wantAsked("watch@1002")
	})
}

func TestSource_NeedsANamespace(t *testing.T) {
	cfg := valid()
	cfg.NamespaceFile = t.TempDir() + "/namespace"
	source, err := New(cfg)
	must(t, err)
	err = source.Watch(t.Context(), func([]upstream.Instance) { t.Error("set was called") })
	if err == nil || !strings.Contains(err.Error(), "namespace of this pod") {
		t.Errorf("Watch = %v, want what it lacks", err)
	}
}

func TestSource_EndsWhileItWaits(t *testing.T) {
	inCluster(t, func(api *kubetest.Server, _ *Config) { api.Forbid("list") }, func(w *world) {
		w.pass(time.Minute)
		w.wantCount(0, 0) // before the first
	})
}

func TestSource_EndsBeforeItHasBegun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := valid()
	cfg.Namespace = "serving"
	source, err := New(cfg)
	must(t, err)
	if err := source.Watch(ctx, func([]upstream.Instance) { t.Error("set was called") }); err != nil {
		t.Errorf("Watch = %v, want nil", err)
	}
}
