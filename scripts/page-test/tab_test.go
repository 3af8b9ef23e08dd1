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
	t       *testing.T
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
	b.do("Page.navigate", map[string]any{"url": base})
	return b
}

// blank prepares a tab.
func (c *chromium) blank(t *testing.T, base string) *tab {
	t.Helper()
	b := &tab{t: t, browser: c, base: base, stubs: map[string]stub{}}
	var target struct{ TargetID, SessionID string }
	must(t, json.Unmarshal(b.do("Target.createTarget", map[string]any{"url": "about:blank"}), &target))
	must(t, json.Unmarshal(b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &target))
	b.id = target.SessionID
	c.mu.Lock()
	c.tabs[b.id] = b
	c.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility"} {
		b.do(domain+".enable", nil)
	}
	b.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{
		"source": `addEventListener("securitypolicyviolation", (e) => console.error("policy: " + e.violatedDirective + " " + e.blockedURI))`,
	})
	b.size(1440, 900)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.wrong) > 0 && !b.violates {
			t.Errorf("the page had errors:\n%s", strings.Join(b.wrong, "\n"))
		}
	})
	return b
}

func (b *tab) do(method string, params any) json.RawMessage {
	b.t.Helper()
	result, err := b.browser.do(b.id, method, params)
	must(b.t, err)
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
func (b *tab) answerFor(prefix string, s stub) {
	b.t.Helper()
	b.mu.Lock()
	b.stubs = map[string]stub{prefix: s}
	b.mu.Unlock()
	b.do("Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*" + prefix + "*"}}})
}

// answerItself has the listener answer again.
func (b *tab) answerItself() {
	b.t.Helper()
	b.do("Fetch.disable", nil)
}

// eval runs an expression in the page and puts its value into one.
func (b *tab) eval(expression string, into any) {
	b.t.Helper()
	if err := b.try(expression, into); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
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

// each is a text of each element that a selector finds.
func (b *tab) each(selector, text string) (all []string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("[...document.querySelectorAll(%q)].map(%s)", selector, text), &all)
	return all
}

// holds reports whether an expression is true in the page.
func (b *tab) holds(expression string) (yes bool) {
	b.t.Helper()
	b.eval("Boolean("+expression+")", &yes)
	return yes
}

// click clicks what a selector finds first.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).click()", selector), nil)
}

// shows has the page loaded again with this as its first event.
func (b *tab) shows(event string) {
	b.t.Helper()
	b.answerFor("/admin/live", stub{200, "text/event-stream", "event: snapshot\ndata: " + event + "\n\n"})
	b.do("Page.reload", nil)
}

// text is the text of what a selector finds first.
func (b *tab) text(selector string) (s string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector), &s)
	return s
}

// await waits until an expression is true in the page. While a page loads, expressions may fail.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	var got bool
	var err error
	if eventually(func() bool { err = b.try("Boolean("+expression+")", &got); return err == nil && got }) {
		return
	}
	b.picture("failed")
	var shown string
	_ = b.try("document.body.innerText", &shown)
	b.t.Fatalf("waited in vain until %s (%v). The page:\n%s\nrequests that failed: %q", what, err, shown, b.network)
}

// live waits until the page shows live data.
func (b *tab) live() {
	b.t.Helper()
	b.await("the page is live", `document.querySelector("#status").dataset.state === "live"`)
}

// must ends the test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
func (b *tab) press(key string) {
	b.t.Helper()
	event := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13}[key]}
	if key == "Enter" {
		event["text"] = "\r"
	}
	b.do("Input.dispatchKeyEvent", event)
	event["type"] = "keyUp"
	delete(event, "text")
	b.do("Input.dispatchKeyEvent", event)
}

// write writes where the focus is.
func (b *tab) write(text string) {
	b.t.Helper()
	b.do("Input.insertText", map[string]any{"text": text})
}

// prefer sets what the system is said to prefer of a media feature.
func (b *tab) prefer(feature, value string) {
	b.t.Helper()
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": feature, "value": value}}})
}

func (b *tab) size(width, height int) {
	b.t.Helper()
	b.width = width
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// picture keeps what the page looks like, the whole of it.
func (b *tab) picture(name string) {
	b.t.Helper()
	var high int
	if err := b.try("document.documentElement.scrollHeight", &high); err != nil || high < 900 {
		high = 900
	}
	b.size(b.width, high)
	defer b.size(b.width, 900)
	must(b.t, os.MkdirAll(screens, 0o755))
	must(b.t, os.WriteFile(filepath.Join(screens, name+".png"), b.shot(), 0o644))
}

// shot is a picture of what is on the screen.
func (b *tab) shot() []byte {
	b.t.Helper()
	var shot struct{ Data []byte }
	must(b.t, json.Unmarshal(b.do("Page.captureScreenshot", nil), &shot))
	return shot.Data
}
