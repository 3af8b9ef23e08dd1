package doctor

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

// frontOf is a reverse proxy in front of an address, which flushes each event unless change says otherwise.
func frontOf(t *testing.T, target string, change func(*httputil.ReverseProxy)) string {
	t.Helper()
	to, err := url.Parse(target)
	must(t, err)
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1, Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
	}
	if change != nil {
		change(proxy)
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.URL
}

// instead answers a path by itself.
type instead struct {
	http.RoundTripper

	path string
	by   func(*http.Request) (*http.Response, error)
}

func (i instead) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == i.path {
		return i.by(r)
	}
	return i.RoundTripper.RoundTrip(r)
}

// behind puts a proxy in front of an instance, which answers a path by itself.
func (w *ward) behind(t *testing.T, flag, path string, by func(*http.Request) (*http.Response, error)) {
	t.Helper()
	at := 1 + slices.Index(w.args, flag)
	w.args[at] = frontOf(t, w.args[at], func(p *httputil.ReverseProxy) { p.Transport = instead{p.Transport, path, by} })
}

func TestDoctor_FindsTwoServersBehindOneAddress(t *testing.T) {
	w := newWard(t, nil)
	other := testrig.StartInstance(t, vllmsim.DefaultConfig(), "")
	var asked atomic.Int64
	w.behind(t, "--decode", "/metrics", func(*http.Request) (*http.Response, error) {
		if asked.Add(1)%2 == 0 {
			return http.Get(other.URL() + "/metrics")
		}
		return http.Get(w.decode.URL() + "/metrics")
	})
	w.options.noTurns = true
	told := w.examine(t)
	if f := told.find(t, codeStartChanges); !strings.Contains(f.Fix, "an address of its own") {
		t.Errorf("%+v", f)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestDoctor_FindsATokenizerThatDiffers(t *testing.T) {
	w := newWard(t, nil)
	w.behind(t, "--prefill", "/tokenize", func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: io.NopCloser(strings.NewReader(`{"count":2,"max_model_len":4096,"tokens":[7,8]}`))}, nil
	})
	told := w.examine(t)
	if f := told.find(t, codeParity); !strings.Contains(f.Fix, "--chat-template") || len(told.wrong()) != 1 {
		t.Errorf("%+v", told.wrong())
	}
}

// slowed is a ward whose streams take long enough for buffering to show, with the program running in front.
func slowed(t *testing.T) (w *ward, base string) {
	t.Helper()
	w = newWard(t, func(_, d *vllmsim.Config) { d.Timing.InterToken = 5 * time.Millisecond })
	return w, startProgram(t, w.args)
}

// startProgram runs the program until the test ends, and returns its base URL.
func startProgram(t *testing.T, args []string) string {
	t.Helper()
	cfg, err := configtest.Load(t, strings.Join(args, " "))
	must(t, err)
	logger := slog.New(slog.DiscardHandler)
	p, deps, err := app.NewParts(app.Configured{Config: cfg}, logger)
	must(t, err)
	p.Server = server.New(app.NewServerConfig(cfg, logger), deps)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1) // one result
	go func() { ended <- p.Run(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the program ends with %v", err)
		}
	})
	base := "http://" + listener.Addr().String()
	if !testrig.Eventually(func() bool { return isReady(base) }) {
		t.Fatal("the program is not ready")
	}
	return base
}

func isReady(base string) bool {
	resp, err := http.Get(base + "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestDoctor_LooksThroughAProxyInFront(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*httputil.ReverseProxy)
		want   string
		fix    string
	}{
		{name: "one that does no harm"},
		{"a buffer", func(p *httputil.ReverseProxy) {
			p.FlushInterval = 0
			p.ModifyResponse = func(r *http.Response) error {
				text, err := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(text)))
				return err
			}
		}, codeFrontBuffers, "proxy_buffering off"},
		{"hidden answers", func(p *httputil.ReverseProxy) {
			p.ModifyResponse = func(r *http.Response) error {
				r.Header.Del("X-Kv-Reuse")
				return nil
			}
		}, codeFrontForeign, "X-KV-Reuse"},
		{"no conversation ids", func(p *httputil.ReverseProxy) {
			to := p.Rewrite
			p.Rewrite = func(r *httputil.ProxyRequest) {
				to(r)
				r.Out.Header.Del("X-Conversation-Id")
			}
		}, codeFrontID, "X-Conversation-Id"},
		{"nothing behind it", func(p *httputil.ReverseProxy) {
			p.Rewrite = func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}) }
			p.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) }
		}, codeFrontDown, "/readyz"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, base := slowed(t)
			w.options.through = frontOf(t, base, tc.change)
			told := w.examine(t)
			nothingLeft(t, []*vllmsim.Instance{w.prefill}, []*vllmsim.Instance{w.decode})
			if tc.want == "" {
				if len(told.wrong()) > 0 || len(told.Notes) > len(unseen) {
					t.Errorf("%+v, %q", told.wrong(), told.Notes)
				}
				return
			}
			if f := told.find(t, tc.want); !strings.Contains(f.Fix, tc.fix) || len(told.wrong()) != 1 {
				t.Errorf("%+v", told.wrong())
			}
		})
	}
}
