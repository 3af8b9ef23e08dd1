package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"carryover/upstream"
	"carryover/upstream/discovery/kubernetes/kubetest"
)

// manyPods puts so many decode pods.
func manyPods(api *kubetest.Server, n int) {
	for i := range n {
		api.Put(kubetest.Pod{Name: fmt.Sprintf("d-%05d", i), IP: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), Labels: map[string]string{"model": "decode"}})
	}
}

func TestSource_ListsPageByPage(t *testing.T) {
	inCluster(t, func(w *world) { manyPods(w.api, 1200) }, func(w *world) {
		w.wantCount(1200, 1)
		w.wantAsked("list list list watch@2200")
	})
}

func TestSource_PagesAreOfOneVersion(t *testing.T) {
	inCluster(t, func(w *world) {
		manyPods(w.api, 600)
		w.api.Before(func(r kubetest.Request) {
			if r.Query["continue"] != nil {
				w.api.Put(kubetest.Pod{Name: "a-new", IP: "10.3.0.1", Labels: map[string]string{"model": "decode"}}) // it would be on the first page
			}
		})
	}, func(w *world) {
		w.wantCount(601, 2)
		w.wantAsked("list list watch@1600")
	})
}

func TestSource_BeginsAListAnewWhenAPageIsForgotten(t *testing.T) {
	inCluster(t, func(w *world) {
		manyPods(w.api, 600)
		forget := true
		w.api.Before(func(r kubetest.Request) {
			if r.Query["continue"] != nil && forget {
				forget = false
				w.api.Pass()
				w.api.Compact()
			}
		})
	}, func(w *world) {
		w.wantCount(600, 1)
		w.wantAsked("list list list list watch@1601")
	})
}

// onePage is a list of n pods, without pages: of thousands each page takes the API server of the test long to make.
func onePage(n int) kubetest.Refusal {
	var pods []string
	for i := range n {
		pods = append(pods, fmt.Sprintf(`{"metadata":{"name":"d-%d","labels":{"model":"decode"}},"status":{"phase":"Running","podIP":"10.1.2.3","conditions":[{"type":"Ready","status":"True"}]}}`, i))
	}
	return kubetest.Refusal{Status: 200, Body: `{"metadata":{"resourceVersion":"1000"},"items":[` + strings.Join(pods, ",") + `]}`}
}

func TestSource_KeepsItsListWhereTooMuchMatches(t *testing.T) {
	inCluster(t, before(onePair), func(w *world) {
		w.want("p:p-1 d:d-1")
		w.api.Refuse(onePage(maxObjects + 1))
		w.api.Fail()
		w.pass(firstWait)
		w.want("p:p-1 d:d-1")
		w.wantLog("more than 10,000 match")
	})
}

func TestSource_KeepsItsListWhereEventsAddTooMany(t *testing.T) {
	inCluster(t, func(w *world) { w.api.Refuse(onePage(maxObjects)) }, func(w *world) {
		w.api.Refuse(onePage(maxObjects + 1))
		w.play("put p-1")
		w.pass(firstWait)
		if got := len(w.last()); got != maxObjects {
			t.Errorf("got %d instances, want the %d of the last list that was small enough", got, maxObjects)
		}
		w.wantLog("more than 10,000 match")
	})
}

func TestSource_RefusesAPageThatIsTooLarge(t *testing.T) {
	inCluster(t, func(w *world) {
		w.play(onePair)
		w.api.Refuse(kubetest.Refusal{Status: 200, Body: `{"items":["` + strings.Repeat("x", maxPage)})
	}, func(w *world) {
		w.wantLog("more than 16 MiB")
		w.pass(firstWait)
		w.want("p:p-1 d:d-1")
	})
}

func TestEvents(t *testing.T) {
	const empty = `{"type":"ADDED","object":""}`
	large := strings.Replace(empty, `""`, `"`+strings.Repeat("x", maxEvent-len(empty))+`"`, 1)
	for name, row := range map[string]struct {
		text  string
		kinds string
		err   error
	}{
		"nothing":              {"", "", io.EOF},
		"two lines":            {`{"type":"ADDED","object":{}}` + "\n" + `{"type":"DELETED","object":{}}` + "\n", "ADDED DELETED", io.EOF},
		"nothing between":      {`{"type":"ADDED"}{"type":"MODIFIED"}`, "ADDED MODIFIED", io.EOF},
		"cut":                  {`{"type":"ADDED"}` + "\n" + `{"type":"DEL`, "ADDED", io.ErrUnexpectedEOF},
		"no JSON":              {`{"type":"ADDED"}` + "\n<html>", "ADDED", errUnreadable},
		"another kind of JSON": {`["ADDED"]`, "", errUnreadable},
		"the largest":          {large + large, "ADDED ADDED", io.EOF},
		"a byte too large":     {large + strings.Replace(large, "x", "xx", 1), "ADDED", errUnreadable},
	} {
		for reading, source := range map[string]io.Reader{"at once": strings.NewReader(row.text), "in halves": iotest.HalfReader(strings.NewReader(row.text))} {
			stream := newEvents(source)
			var kinds []string
			var err error
			for {
				var e event
				if e, err = stream.next(); err != nil {
					break
				}
				kinds = append(kinds, e.Type)
			}
			if got := strings.Join(kinds, " "); got != row.kinds || !errors.Is(err, row.err) {
				t.Errorf("%s, read %s: got %q and %v, want %q and %v", name, reading, got, err, row.kinds, row.err)
			}
		}
	}
}

func TestEvent_Refusal(t *testing.T) {
	for name, row := range map[string]struct {
		object string
		gone   bool
	}{
		"expired":   {`{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 1 (2)"}`, true},
		"other":     {`{"kind":"Status","code":500,"reason":"InternalError"}`, false},
		"no object": {`null`, false},
		"no status": {`"410"`, false},
	} {
		r := event{Type: failed, Object: []byte(row.object)}.refusal()
		if forgotten(r) != row.gone || resumable(r) {
			t.Errorf("%s: forgotten %v, resumable %v, want %v, false", name, forgotten(r), resumable(r), row.gone)
		}
	}
}

// FuzzEvents reads a watch to its end and checks what it makes of it.
func FuzzEvents(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		var last []upstream.Instance
		watch := follower{reader: reader{port: "http", prefill: []string{"prefill"}, decode: []string{"decode"}}, roster: &roster{
			set: func(all []upstream.Instance) { last = all }, logger: slog.New(slog.DiscardHandler), objects: map[string]object{},
		}}
		stream := newEvents(strings.NewReader(text))
		for {
			e, err := stream.next()
			if err != nil {
				break
			}
			if err := watch.apply(e); err != nil && !errors.Is(err, errUnreadable) && resumable(err) {
				t.Errorf("%v can be gone on from", err)
			}
		}
		for i, instance := range last {
			if u, err := url.Parse(instance.BaseURL); err != nil || u.Path != "" || u.Port() == "" || instance.Name == "" {
				t.Errorf("%+v is no instance (%v)", instance, err)
			}
			same := func(other upstream.Instance) bool { return other.Role == instance.Role && other.Name == instance.Name }
			if slices.IndexFunc(last, same) != i {
				t.Errorf("%+v is there twice", instance)
			}
		}
	})
}
