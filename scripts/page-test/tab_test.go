package page

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// screens is where pictures of the page go, outside of what git keeps.
const screens = "../../bin/screens"

// tab is a page that is looked at. At the end of its test it must have had no error, broken no rule of its policy, and asked no other host.
type tab struct {
	browser *chromium
	id      string // by which the browser knows it
	base    string // of the page
	width   int    // of the screen

	mu       sync.Mutex // guards the rest
	wrong    []string   // errors of scripts, breaches of the policy, requests elsewhere
	network  []string   // requests that failed
	stubs    map[string]stub
	violates bool // a breach is part of the test
}

// stub is an answer in place of the listener's, for a path that begins so.
type stub struct {
	status int
	kind   string
	body   string
}

// open opens a page at the base URL of an admin listener.
func (c *chromium) open(t *testing.T, base string) *tab {
	t.Helper()
	b := c.blank(t, base)
	b.do(t, "Page.navigate", map[string]any{"url": base})
	return b
}

// blank prepares a tab.
func (c *chromium) blank(t *testing.T, base string) *tab {
	t.Helper()
	b := &tab{browser: c, base: base, stubs: map[string]stub{}}
	var target struct{ TargetID, SessionID string }
	for _, step := range []struct {
		method string
		params func() map[string]any
	}{
		{"Target.createTarget", func() map[string]any { return map[string]any{"url": "about:blank"} }},
		{"Target.attachToTarget", func() map[string]any { return map[string]any{"targetId": target.TargetID, "flatten": true} }},
	} {
		result, err := c.do("", step.method, step.params())
		if err == nil {
			err = json.Unmarshal(result, &target)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.id = target.SessionID
	c.mu.Lock()
	c.tabs[b.id] = b
	c.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility"} {
		b.do(t, domain+".enable", nil)
	}
	b.do(t, "Page.addScriptToEvaluateOnNewDocument", map[string]any{
		"source": `addEventListener("securitypolicyviolation", (e) => console.error("policy: " + e.violatedDirective + " " + e.blockedURI))`,
	})
	b.size(t, 1440, 900)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.wrong) > 0 && !b.violates {
			t.Errorf("the page had errors:\n%s", strings.Join(b.wrong, "\n"))
		}
	})
	return b
}

func (b *tab) do(t *testing.T, method string, params any) json.RawMessage {
	t.Helper()
	result, err := b.browser.do(b.id, method, params)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// heard takes in an event. It must not wait.
func (b *tab) heard(method string, params json.RawMessage) {
	var p struct {
		Type             string
		Args             []struct{ Value any }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Entry     struct{ Source, Level, Text, URL string }
		Request   struct{ URL string }
		RequestID string `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case method == "Runtime.consoleAPICalled" && slices.Contains([]string{"error", "warning", "assert"}, p.Type):
		b.wrong = append(b.wrong, fmt.Sprint("console: ", p.Args))
	case method == "Runtime.exceptionThrown":
		b.wrong = append(b.wrong, "exception: "+p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case method == "Log.entryAdded" && p.Entry.Source == "network":
		b.network = append(b.network, p.Entry.Text+" "+p.Entry.URL)
	case method == "Log.entryAdded" && (p.Entry.Level == "error" || p.Entry.Level == "warning"):
		b.wrong = append(b.wrong, "log: "+p.Entry.Text)
	case method == "Network.requestWillBeSent":
		if at := p.Request.URL; !strings.HasPrefix(at, b.base) && !strings.HasPrefix(at, "data:") {
			b.wrong = append(b.wrong, "request to "+at)
		}
	case method == "Fetch.requestPaused":
		b.stand(p.RequestID, p.Request.URL)
	}
}

// stand answers a request in place of the listener, or lets it go on.
func (b *tab) stand(id, at string) {
	parsed, err := url.Parse(at)
	for prefix, s := range b.stubs {
		if err == nil && strings.HasPrefix(parsed.Path, prefix) {
			_ = b.browser.send(b.id, "Fetch.fulfillRequest", map[string]any{
				"requestId": id, "responseCode": s.status, "body": base64.StdEncoding.EncodeToString([]byte(s.body)),
				"responseHeaders": []map[string]string{{"name": "Content-Type", "value": s.kind}},
			}, nil)
			return
		}
	}
	_ = b.browser.send(b.id, "Fetch.continueRequest", map[string]any{"requestId": id}, nil)
}

// answerFor has requests for a path answered in place of the listener.
func (b *tab) answerFor(t *testing.T, prefix string, s stub) {
	t.Helper()
	b.mu.Lock()
	b.stubs = map[string]stub{prefix: s}
	b.mu.Unlock()
	b.do(t, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*" + prefix + "*"}}})
}

// answerItself has the listener answer again.
func (b *tab) answerItself(t *testing.T) {
	t.Helper()
	b.do(t, "Fetch.disable", nil)
}

// eval runs an expression in the page and puts its value into one.
func (b *tab) eval(t *testing.T, expression string, into any) {
	t.Helper()
	if err := b.try(expression, into); err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
}

func (b *tab) try(expression string, into any) error {
	result, err := b.browser.do(b.id, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true})
	if err != nil {
		return err
	}
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("%s %s", r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	if into == nil || len(r.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(r.Result.Value, into)
}

// text is the text of what a selector finds first.
func (b *tab) text(t *testing.T, selector string) (s string) {
	t.Helper()
	b.eval(t, fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector), &s)
	return s
}

// await waits until an expression is true in the page. While a page loads, expressions may fail.
func (b *tab) await(t *testing.T, what, expression string) {
	t.Helper()
	var got bool
	var err error
	if eventually(func() bool { err = b.try("Boolean("+expression+")", &got); return err == nil && got }) {
		return
	}
	b.picture(t, "failed")
	var shown string
	_ = b.try("document.body.innerText", &shown)
	t.Fatalf("waited in vain until %s (%v). The page:\n%s\nrequests that failed: %q", what, err, shown, b.network)
}

// live waits until the page shows live data.
func (b *tab) live(t *testing.T) {
	t.Helper()
	b.await(t, "the page is live", `document.querySelector("#status").dataset.state === "live"`)
}

// eventually waits until something holds, and reports whether it came to.
func eventually(holds func() bool) bool {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-end:
			return holds()
		}
	}
	return true
}

// press presses a key.
func (b *tab) press(t *testing.T, key string) {
	t.Helper()
	event := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13}[key]}
	if key == "Enter" {
		event["text"] = "\r"
	}
	b.do(t, "Input.dispatchKeyEvent", event)
	event["type"] = "keyUp"
	delete(event, "text")
	b.do(t, "Input.dispatchKeyEvent", event)
}

// write writes where the focus is.
func (b *tab) write(t *testing.T, text string) {
	t.Helper()
	b.do(t, "Input.insertText", map[string]any{"text": text})
}

// prefer sets what the system is said to prefer: pairs of a media feature and its value.
func (b *tab) prefer(t *testing.T, pairs ...string) {
	t.Helper()
	features := []map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		features = append(features, map[string]string{"name": pairs[i], "value": pairs[i+1]})
	}
	b.do(t, "Emulation.setEmulatedMedia", map[string]any{"features": features})
}

func (b *tab) size(t *testing.T, width, height int) {
	t.Helper()
	b.width = width
	b.do(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// picture keeps what the page looks like, the whole of it.
func (b *tab) picture(t *testing.T, name string) {
	t.Helper()
	var high int
	if err := b.try("document.documentElement.scrollHeight", &high); err != nil || high < 900 {
		high = 900
	}
	b.size(t, b.width, high)
	defer b.size(t, b.width, 900)
	result, err := b.browser.do(b.id, "Page.captureScreenshot", nil)
	var shot struct{ Data []byte }
	if err == nil {
		err = json.Unmarshal(result, &shot)
	}
	if err == nil {
		err = os.MkdirAll(screens, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(screens, name+".png"), shot.Data, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
