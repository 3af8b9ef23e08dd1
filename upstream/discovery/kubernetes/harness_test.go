package kubernetes

import (
	"carryover/logtest"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/discovery/kubernetes/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster and a source that watches it, in a bubble whose time stands still while anything happens.
type world struct {
	t   *testing.T
	api *kubetest.Server
	log logtest.Log
	cfg *Config // before the source begins

	fresh map[string][]byte // the right content of files that are wrong or missing

	mu    sync.Mutex // guards everything below
	lists [][]upstream.Instance
	away  bool        // the API server cannot be dialled
	dials []time.Time // while it is away
}

// inCluster runs test with a source that watches a cluster, as prepare has made both.
func inCluster(t *testing.T, prepare, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pipe := kubetest.NewPipe()
		w := &world{t: t, api: kubetest.Start(t, pipe), fresh: map[string][]byte{}}
		cfg := Config{
			APIHost: kubetest.Host, APIPort: "443",
			TokenFile: w.api.Path("token"), CAFile: w.api.Path("ca.crt"), NamespaceFile: w.api.Path("namespace"),
			LabelSelector: "model in (prefill,decode)", Port: "8000",
			PrefillLabels: []string{"prefill"}, DecodeLabels: []string{"decode"},
			Logger: w.log.Logger(), Dial: w.dial(pipe),
		}
		w.cfg = &cfg
		prepare(w)
		source, err := New(cfg)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- source.Watch(ctx, w.set) }()
		synctest.Wait()
		test(w)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch = %v at the end of its context, want nil", err)
		}
		if strings.Contains(w.log.String(), "very-secret") {
			t.Errorf("the log has a token:\n%s", w.log.String())
		}
	})
}

// dial connects to the pipe unless the API server is away.
func (w *world) dial(pipe *kubetest.Pipe) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		if w.away {
			w.dials = append(w.dials, time.Now())
			w.mu.Unlock()
			return nil, errors.New("connection refused")
		}
		w.mu.Unlock()
		return pipe.Dial(ctx, network, address)
	}
}

func (w *world) setAway(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

func (w *world) set(instances []upstream.Instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = append(w.lists, instances)
}

// told is how many lists were set so far.
func (w *world) told() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lists)
}

// last is the list that was set last.
func (w *world) last() []upstream.Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lists) == 0 {
		return nil
	}
	return w.lists[len(w.lists)-1]
}

// names are those of the last list, with a letter for the role.
func (w *world) names() string {
	var all []string
	for _, i := range w.last() {
		all = append(all, i.Role.String()[:1]+":"+i.Name)
	}
	return strings.Join(all, " ")
}

// want settles and compares names.
func (w *world) want(names string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.names(); got != names {
		w.t.Fatalf("instances %q, want %q; log:\n%s", got, names, w.log.String())
	}
}

// wantCount compares how many instances the last list has, and how many lists were set.
func (w *world) wantCount(instances, lists int) {
	w.t.Helper()
	if got := len(w.last()); got != instances || w.told() != lists {
		w.t.Errorf("got %d instances in %d lists, want %d in %d", got, w.told(), instances, lists)
	}
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// asked are the requests since it was called last: list, or watch and the version it goes on from.
func (w *world) asked() string {
	synctest.Wait()
	var all []string
	for _, r := range w.api.Requests() {
		text := r.Verb
		if from := r.Query["resourceVersion"]; from != nil {
			text += "@" + from[0]
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func (w *world) wantAsked(requests string) {
	w.t.Helper()
	if got := w.asked(); got != requests {
		w.t.Fatalf("requests %q, want %q; log:\n%s", got, requests, w.log.String())
	}
}

func (w *world) wantLog(part string) {
	w.t.Helper()
	if !strings.Contains(w.log.String(), part) {
		w.t.Errorf("the log lacks %q:\n%s", part, w.log.String())
	}
}

// podNamed is a pod by its name, which begins with a letter for its role, and what is unusual of it.
func podNamed(text string) kubetest.Pod {
	name, unusual, _ := strings.Cut(text, ":")
	p := kubetest.Pod{Name: name, IP: "10.0.0." + name[2:], Labels: map[string]string{"model": map[byte]string{'p': "prefill", 'd': "decode"}[name[0]]}}
	switch unusual {
	case "pending":
		p.IP, p.Phase = "", "Pending"
	case "unready":
		p.NotReady = true
	case "ending":
		p.Terminating = true
	case "large":
		p.Annotations = map[string]string{"x": strings.Repeat("x", maxEvent)}
	case "":
	default:
		p.Labels["model"] = unusual
	}
	return p
}

// onePair puts a pod of each role: versions 1001 and 1002.
const onePair = "put p-1 d-1"

// before does steps before the source begins.
func before(steps string) func(*world) { return func(w *world) { w.play(steps) } }

// play does steps, separated by semicolons, each a word and what it is about.
func (w *world) play(steps string) {
	for step := range strings.SplitSeq(steps, ";") {
		verb, about, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch verb {
		case "":
		case "put":
			for text := range strings.FieldsSeq(about) {
				w.api.Put(podNamed(text))
			}
		case "delete":
			w.api.Delete(about)
		case "forbid":
			w.api.Forbid(about)
		case "allow":
			w.api.Allow(about)
		case "answer-gone":
			w.api.AnswerGone()
		case "rotate":
			w.api.RotateToken()
		case "revoke":
			w.fresh["token"] = []byte(w.api.RevokeToken() + "\n")
		case "another-ca":
			w.fresh["ca.crt"] = w.api.ReplaceCA()
		case "lose":
			raw, err := os.ReadFile(w.api.Path(about))
			must(w.t, err)
			w.fresh[about] = raw
			must(w.t, os.Remove(w.api.Path(about)))
		case "install":
			must(w.t, os.WriteFile(w.api.Path(about), w.fresh[about], 0o600))
		case "elsewhere":
			w.cfg.APIHost = "elsewhere.example"
		case "refuse": // with a status
			status, err := strconv.Atoi(about)
			must(w.t, err)
			w.api.Refuse(kubetest.Refusal{Status: status, Header: map[string]string{"Retry-After": "7", "Location": "https://elsewhere.example/"}})
		case "answer": // with a body
			w.api.Refuse(kubetest.Refusal{Status: 200, Body: about})
		case "end":
			w.api.End()
		case "cut":
			w.api.Cut()
		case "tear":
			w.api.Tear()
		case "fail":
			w.api.Fail()
		case "change-another": // of which the watch tells nothing
			w.api.Pass()
		case "bookmark":
			w.api.Bookmark()
		case "forget":
			w.api.Compact()
		case "away", "back":
			w.setAway(verb == "away")
		case "wait":
			d, err := time.ParseDuration(about)
			must(w.t, err)
			w.pass(d)
		case "want":
			w.want(about)
		case "lists": // so many were set
			if got := strconv.Itoa(w.told()); got != about {
				w.t.Errorf("set was called %s times, want %s", got, about)
			}
		case "asked":
			w.wantAsked(about)
		case "logged":
			w.wantLog(about)
		default:
			panic(verb)
		}
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
