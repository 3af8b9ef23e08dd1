package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// hostile is a name that would run a script, or show an image, where a page took it for markup.
const hostile = `<img src=x onerror="document.title='pwned'"><script>document.title='pwned'</script>`

func TestPage_AsksForTheTokenAndShowsNamesAsText(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	s := startServing(t, hostile, token)
	c := startChromium(t)
	b := c.open(t, s.page)
	b.await("the token is asked for", `document.querySelector("#status").dataset.state === "token" && document.activeElement.id === "token"`)
	if text := b.text("#fleet-table tbody"); text != "" {
		t.Errorf("without the token the fleet is shown: %s", text)
	}
	b.write("another-token-than-that")
	b.press("Enter")
	b.await("the wrong one is refused", `document.querySelector("#status-text").textContent.includes("another one") && document.activeElement.id === "token"`)
	b.write(token)
	b.press("Enter")
	b.live()
	var kept struct {
		Session, Local, Address, Cookie string
		Form                            bool
	}
	b.eval(`({ session: JSON.stringify(sessionStorage), local: JSON.stringify(localStorage), address: location.href, cookie: document.cookie,
		form: document.getElementById("token-form").checkVisibility() })`, &kept)
	if !strings.Contains(kept.Session, token) || strings.Contains(kept.Local+kept.Address+kept.Cookie, token) || kept.Form {
		t.Errorf("the token is kept so: %+v", kept)
	}
	s.turn(hostile, "mine", question, s.turn(hostile, "mine", question), "Thank you.")
	b.await("both turns are shown", `document.querySelectorAll("#turns-table tbody tr:not(.record)").length === 2`)
	b.click("#turns-table button")
	for _, cell := range []string{"#fleet-table tbody tr td:nth-child(11)", "#turns-table tbody tr td:nth-child(5)"} {
		if text := b.text(cell); text != hostile {
			t.Errorf("%s says %q", cell, text)
		}
	}
	if text := b.text("#turns-table tr.record:not([hidden])"); !strings.Contains(text, hostile) {
		t.Errorf("record: %q", text)
	}
	var found struct {
		Elements int
		Title    string
	}
	b.eval(`({ elements: document.querySelectorAll("img, main script").length, title: document.title })`, &found)
	if found.Elements != 0 || found.Title != "Carryover" {
		t.Errorf("the names were taken for markup: %+v", found)
	}
	b.picture("hostile")
	b.do("Page.reload", nil)
	b.live() // the tab knows the token still
	other := c.open(t, s.page)
	other.await("another tab is asked for the token", `document.querySelector("#status").dataset.state === "token"`)
}

// The policy holds: this shows that a breach would be seen, and comes to nothing.
func TestPage_RunsNoOtherScript(t *testing.T) {
	_, b := openDemo(t)
	b.violates = true
	for what, try := range map[string]string{
		"a script of its own": `const s = document.createElement("script"); s.text = "document.title = 'pwned'"; document.head.append(s)`,
		"markup":              `document.body.insertAdjacentHTML("beforeend", "<b>pwned</b>")`,
		"another host":        `fetch("http://127.0.0.1:1/").catch(() => {})`,
		"an image elsewhere":  `document.body.append(Object.assign(new Image(), { src: "http://127.0.0.1:1/x.png" }))`,
		"a style of its own":  `const s = document.createElement("style"); s.textContent = "body { display: none }"; document.head.append(s)`,
	} {
		b.mu.Lock()
		b.wrong = nil
		b.mu.Unlock()
		_ = b.try("(() => { "+try+" })()", nil) // some throw
		if !eventually(func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return strings.Contains(strings.Join(b.wrong, "\n"), "policy: ")
		}) {
			t.Errorf("%s is not stopped", what)
		}
	}
	var title, display string
	b.eval(`document.title`, &title)
	b.eval(`getComputedStyle(document.body).display`, &display)
	if title != "Carryover" || display != "block" || strings.Contains(b.text("body"), "pwned") {
		t.Errorf("title %q, display %q", title, display)
	}
}

func TestPage_ShowsAConversation(t *testing.T) {
	_, b := openDemo(t)
	hash := b.text("#turns-table tr:has(.hit) td:last-child")
	b.eval(`document.querySelector("#turns-table tr:has(.hit) button").click();
		document.querySelector("#turns-table tr.record:not([hidden]) button").click()`, nil)
	b.await("its turns are shown", `document.querySelectorAll("#conversation-table tbody tr").length === 4`)
	if note := b.text("#conversation-note"); !strings.HasPrefix(note, "Conversation "+hash+": 4 turns") {
		t.Errorf("note %q", note)
	}
	rows := b.each(`#conversation-table tbody tr`, `(row) => row.cells[2].textContent`)
	if !strings.Contains(rows[0], "first turn") || !strings.Contains(rows[3], "hit") {
		t.Errorf("turns, oldest first: %q", rows)
	}
	b.picture("conversation")
}

func TestPage_SaysWhyThereIsNoConversation(t *testing.T) {
	_, b := openDemo(t)
	told, err := json.Marshal(map[string]any{"conversation": "abc", "turns": []map[string]any{
		{"turn": "t2", "began": "2026-11-22T20:00:10Z", "duration_ms": 900, "outcome": "miss", "reason": "history_rewritten", "differs": "messages[1].content " + hostile, "lookup_ms": 1, "status": 200},
		{"turn": "t1", "began": "2026-11-22T20:00:00Z", "duration_ms": 1000, "outcome": "hit", "tokens_offered": 90, "prompt_tokens": 100, "lookup_ms": 1, "status": 200},
	}})
	must(t, err)
	for _, tc := range []struct {
		stub
		note string
		rows int
	}{
		{stub{200, "application/json", string(told)}, "Conversation abc: 2 turns are kept, 1 of them hits.", 2},
		{
			stub{200, "application/json", `{"turns":[],"tickets":[{"instance":"d-1","tokens":1200,"deadline":"2026-11-22T20:00:00Z"}]}`},
			"Conversation abc: 0 turns are kept, 0 of them hits. A ticket for 1,200 tokens on d-1 can be used until 20:00:00.", 0,
		},
		{stub{404, "application/json", `{"error":{"message":"none"}}`}, "Nothing is kept of conversation abc.", 0},
		{stub{200, "application/json", `{"conversation":"abc","turns":[]}`}, "Nothing is kept of conversation abc.", 0},
		{stub{404, "text/plain", "404 page not found"}, "This listener tells nothing of conversations.", 0},
		{stub{403, "application/json", `{"error":{"message":"Not for you."}}`}, "Not for you.", 0},
	} {
		b.answerFor("/admin/conversations/", tc.stub)
		b.eval(`document.getElementById("conversation-note").textContent = ""; document.getElementById("conversation-hash").value = "abc";
			document.querySelector("#conversation-form button").click()`, nil)
		b.await("an answer is shown: "+tc.note, fmt.Sprintf(`document.getElementById("conversation-note").textContent === %q &&
			document.querySelectorAll("#conversation-table tbody tr").length === %d`, tc.note, tc.rows))
		if tc.rows > 0 {
			if text := b.text("#conversation-table tbody"); !strings.Contains(text, "history rewritten · messages[1].content "+hostile) || !strings.Contains(text, "9 s") {
				t.Errorf("timeline: %s", text)
			}
		}
	}
}

// Engines say when they were started. Of what is no date the page shows what was said, and all else as ever.
func TestPage_ShowsAStartThatIsNoDate(t *testing.T) {
	_, b := openDemo(t)
	event := `{"now":"2026-11-22T20:00:00Z","instances":[{"role":"decode","name":"d-1","url":"http://d","state":"up","incarnation":"1e300","in_flight":0,"pinned_tokens":0}],
		"open_turns":0,"queue":{"to_begin":0,"for_instance":0},"records":[],"bounds_ms":[5,10],"totals":{"since":"2026-11-22T19:00:00Z","turns":77,"hits":77,"off":0,
		"misses":{"__proto__":3},"failed":0,"saved_tokens":0,"saved_seconds":0,"ttft_hits":{"counts":[1,2,3],"sum_ms":60},"ttft_hits_without":{"counts":[0,0,0],"sum_ms":0}}}`
	b.shows(strings.Join(strings.Fields(event), ""))
	b.await("the start is shown as it was said", `document.querySelector("#fleet-table tbody")?.textContent.includes("1e300")`)
	b.await("what stands behind the fleet is shown, too", `document.querySelector("#turns-shown").textContent.startsWith("0 of")`)
}
