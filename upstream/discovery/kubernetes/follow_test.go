package kubernetes

import (
	"context"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
)

func TestSource_FollowsTheCluster(t *testing.T) {
	const forgotten = "want p:p-1 d:d-1; away; cut; wait 1ms; delete p-1; put p-2 d-2; forget; back;" +
		"want p:p-1 d:d-1;" + // the last list stays meanwhile
		"wait 1s; want p:p-2 d:d-1 d:d-2; asked list watch@1002 watch@1002 list watch@1005; lists 2"
	for name, row := range map[string][2]string{ // before the source begins, and then
		"pods come, become ready and go": {onePair, "want p:p-1 d:d-1; put p-2:pending; want p:p-1 d:d-1; put p-2:unready; want p:p-1 d:d-1; lists 1;" +
			"put p-2; want p:p-1 p:p-2 d:d-1; put p-1:ending; want p:p-2 d:d-1; delete p-1; delete d-1; want p:p-2; asked list watch@1002"},
		"an empty cluster is a list too":     {"", "lists 1; want"},
		"pods that no longer match are gone": {onePair, "put p-1:canary; want d:d-1; put p-1:decode; want d:d-1 d:p-1"},
		// Without the bookmark it would be 1003, which is gone.
		"a watch that ends goes on from its last version": {onePair, "put p-2; asked list watch@1002; end; asked watch@1003; wait 1s; change-another; bookmark; asked;" +
			"forget; end; asked watch@1004; want p:p-1 p:p-2 d:d-1"},
		"a version that is forgotten, told by an event":  {onePair, forgotten},
		"a version that is forgotten, told by an answer": {onePair + "; answer-gone", forgotten},
		"one that is forgotten while it is watched":      {onePair, "wait 1s; change-another; forget; end; want p:p-1 d:d-1; asked list watch@1002 watch@1002 list watch@1003"},
		"an error that is not about the version":         {onePair, "fail; wait 1s; asked list watch@1002 list watch@1002; logged etcdserver: mvcc: something else"},
		// The second wait is a second at least.
		"watches that end at once": {onePair, "end; wait 0s; end; wait 0s; end; wait 0s; asked list watch@1002; logged the watch ended at once; wait 1s; asked watch@1002;" +
			"end; wait 500ms; asked; wait 2s; asked watch@1002"},
		"it ends while it waits for its first list": {"forbid list", "wait 1m; lists 0"},
		"a cut": {onePair, "away; cut; want p:p-1 d:d-1; delete d-1; put d-2; back; want p:p-1 d:d-1;" +
			"wait 1s; want p:p-1 d:d-2; asked list watch@1002 watch@1002"}, // the deletion came with the history
		"a connection that breaks within an event": {onePair, "tear; put p-2; want p:p-1 d:d-1; wait 1s; want p:p-1 p:p-2 d:d-1; asked list watch@1002 watch@1002"},
		"an event that is too large":               {onePair, "put p-2:large; want p:p-1 d:d-1; logged more than 2 MiB; wait 1s; want p:p-1 p:p-2 d:d-1"}, // by the list
		"a verb that it lacks": {onePair + "; forbid list", `wait 1m; logged level=ERROR; logged needs_verb=list needs_resource=pods needs_api_group="";` +
			"allow list; wait 30s; want p:p-1 d:d-1"},

		"a token that is replaced": {onePair, "rotate; wait 1s; end; asked list watch@1002 watch@1002;" + // neither refused
			"revoke; wait 1s; end; asked watch@1002; logged 401 Unauthorized; install token; wait 1s; asked watch@1002; put p-2; want p:p-1 p:p-2 d:d-1"},
		"a token that comes later": {onePair + "; lose token", "asked; logged token of the service account; install token; wait 1s; want p:p-1 d:d-1"},
		"a CA that is replaced":    {onePair, "another-ca; cut; wait 5s; asked list watch@1002; logged failed to verify certificate; install ca.crt; wait 30s; asked watch@1002"},
		"another CA":               {onePair + "; another-ca", "wait 1m; asked"},
		"another name":             {onePair + "; elsewhere", "wait 1m; asked; logged not elsewhere.example"},
		"a redirect":               {onePair + "; refuse 307", "asked list; logged 307 Temporary Redirect; wait 7s; want p:p-1 d:d-1"},
		"too many requests":        {onePair, waitsAsAsked("429")}, // its version is as good as it was
		"an unavailable server":    {onePair, waitsAsAsked("503")},
		"pages that are none": {onePair + `; answer <html>; answer {}; answer {"metadata":{"resourceVersion":"7","continue":"x"}}; answer {"metadata":{"resourceVersion":"7"},"items":[{}]};` +
			`answer {"metadata":{"resourceVersion":"7"},"items":["p-1"]}`, "wait 1m; want p:p-1 d:d-1; lists 1"},
	} {
		t.Run(name, func(t *testing.T) { inCluster(t, before(row[0]), func(w *world) { w.play(row[1]) }) })
	}
}

func waitsAsAsked(status string) string {
	return "refuse " + status + "; wait 1s; end; asked list watch@1002 watch@1002; wait 6999ms; asked; wait 1ms; asked watch@1002"
}

func TestSource_AsksForEventsOfASelectorWithBookmarksAndATime(t *testing.T) {
	inCluster(t, before(onePair), func(w *world) {
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

func TestSource_DoubtsAVersionOfWhichAWatchTellsNothing(t *testing.T) {
	inCluster(t, before(onePair), func(w *world) {
		w.pass(2 * shortestWatch) // the longest that a watch lasts
		if got := w.asked(); !strings.HasPrefix(got, "list watch@1002 list watch@1002") {
			t.Errorf("requests %q, want a list after the first watch", got)
		}
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
