package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestPage_DrainsAnInstanceAndTakesItBack(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	s := startServing(t, "sim", token)
	b := startChromium(t).open(t, s.page)
	b.await("the token is asked for", `document.querySelector("#status").dataset.state === "token"`)
	b.write(token)
	b.press("Enter")
	b.await("both are up", `[...document.querySelectorAll("#fleet-table tbody tr")].filter((row) => row.cells[2].textContent.trim() === "● up").length === 2`)
	button := `document.querySelector("#fleet-table tbody tr:nth-child(2) button")`
	decode := b.text("#fleet-table tbody tr:nth-child(2) th")
	var name string
	b.eval(button+`.getAttribute("aria-label")`, &name)
	if name != "Drain decode "+decode {
		t.Fatalf("the button is named %q", name)
	}
	b.eval(button+`.click()`, nil)
	b.await("it is asked first", `document.getElementById("confirm").open && document.getElementById("confirm-text").textContent === "Drain decode `+decode+`?"`)
	b.picture("drain")
	b.click("#confirm-no")
	if text := b.text("#fleet-table tbody tr:nth-child(2) td:nth-child(3)"); text != "● up" {
		t.Errorf("it was cancelled, and the instance is %s", text)
	}
	b.eval(button+`.click()`, nil)
	b.await("it is asked again", `document.getElementById("confirm").open`)
	b.click("#confirm-yes")
	b.await("it drains", `document.querySelector("#fleet-table tbody tr:nth-child(2)").cells[2].textContent.includes("draining") && !document.getElementById("confirm").open`)
	b.await("the list of events has it", `document.querySelector("#events-table tbody tr")?.textContent.includes("An operator drains decode `+decode+`")`)
	b.picture("drained")
	b.await("it can be taken back", button+`.textContent === "Take back"`)
	b.eval(button+`.click()`, nil)
	b.click("#confirm-yes")
	b.await("it is back", `document.querySelector("#fleet-table tbody tr:nth-child(2)").cells[2].textContent.trim() === "● up"`)
	rows := b.each(`#events-table tbody tr`, `(row) => row.cells[2].textContent`)
	if len(rows) != 2 || !strings.HasPrefix(rows[0], "An operator takes decode "+decode+" back") {
		t.Errorf("events, newest first: %q", rows)
	}
	b.do("Page.reload", nil)
	b.await("a page that is loaded again has them, too", `document.querySelectorAll("#events-table tbody tr").length === 2`)
	// What the listener refuses stands in the dialog.
	b.answerFor("/admin/instances/", stub{404, "application/json", `{"error":{"message":"No <b>such</b> instance."}}`})
	b.eval(button+`.click()`, nil)
	b.click("#confirm-yes")
	b.await("it is said why not", `document.getElementById("confirm").open && document.getElementById("confirm-note").textContent === "No <b>such</b> instance."`)
}

func TestPage_FindsTurnsByTheClientsID(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	demo.turn("sim", "chat/7 <b>", question)
	demo.turn("sim", "chat/7 <b>", question, "Other words.", "Thank you.")
	b := startChromium(t).open(t, demo.page)
	b.await("all turns are shown", lists(demo.held+2))
	find := func(id string) {
		b.eval(fmt.Sprintf(`document.getElementById("search-id").value = %q; document.querySelector("#search-form button").click()`, id), nil)
	}
	shown := `[...document.querySelectorAll("#turns-table tbody tr:not(.record):not([hidden])")]`
	find("chat/7 <b>")
	b.await("its turns are shown alone", shown+`.length === 2 && document.getElementById("search-note").textContent === "2 turns of 1 conversation:"`)
	var address string
	b.eval(`location.href + JSON.stringify(sessionStorage) + JSON.stringify(localStorage)`, &address)
	if strings.Contains(address, "chat") {
		t.Errorf("the id is kept: %s", address)
	}
	b.picture("search")
	b.click("#search-found button")
	b.await("its timeline is shown", `document.querySelectorAll("#conversation-table tbody tr").length === 2`)
	find("another")
	b.await("nothing is found", shown+`.length === 0 && document.getElementById("search-note").textContent === "No turn with this id is kept."`)
	b.click("#search-clear")
	b.await("all are shown again", fmt.Sprintf(`%s.length === %g && document.getElementById("search-id").value === ""`, shown, demo.held+2))
	resp, err := demo.get("admin/conversations/search?id=chat")
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("an id in the address is answered")
	}
	demo.mu.Lock()
	defer demo.mu.Unlock()
	if strings.Contains(demo.said.String(), "chat/7") {
		t.Error("the log has the id")
	}
}

func TestPage_SaysWhichProgramAndExplains(t *testing.T) {
	_, b := openDemo(t)
	if program := b.text("#program"); !strings.Contains(program, " on ") {
		t.Errorf("program %q, want its version and its host", program)
	}
	var bare []string
	b.eval(`[...document.querySelectorAll("thead th")].filter((th) => !th.title).map((th) => th.closest("table").id + " " + th.textContent)`, &bare)
	if len(bare) > 0 {
		t.Errorf("columns without an explanation: %q", bare)
	}
	described := 0
	for _, n := range b.accessible() {
		if n.Role.Value == "columnheader" && n.Description.Value != nil && n.Description.Value != "" {
			described++
		}
	}
	if described < 30 {
		t.Errorf("%d column heads have a description for screen readers", described)
	}
	// What the reason of a miss means stands at the miss.
	const means = "The request opens its conversation, so there is nothing to reuse yet."
	titles := b.each(`#turns-table td:has(.miss) [title], #reuse-table tr:has(.miss) [title]`, `(e) => e.title`)
	if joined := strings.Join(titles, "\n"); strings.Count(joined, means) < 2 {
		t.Errorf("meanings of reasons: %q", titles)
	}
	b.click("#turns-table tr:has(.miss) button")
	if record := b.text("#turns-table tr.record:not([hidden])"); !strings.Contains(record, "first_turnMeaning"+means) {
		t.Errorf("record: %s", record)
	}
}

func TestPage_SaysWhyItIsNotReady(t *testing.T) {
	t.Parallel()
	s := startServing(t, "sim", "")
	b := startChromium(t).open(t, s.page)
	b.await("both are up", `[...document.querySelectorAll("#fleet-table tbody tr")].filter((row) => row.cells[2].textContent.trim() === "● up").length === 2`)
	s.instances["prefill"].kill()
	b.await("prefill is down, and it says why", `/down.*(refused connections|health probes)/.test(document.querySelector("#fleet-table tbody tr").cells[2].textContent)`)
	s.instances["decode"].kill()
	b.await("the header says it", `document.getElementById("readiness").textContent === "not ready: no decode instance answers"`)
	b.await("the list of events, too", `document.querySelector("#events-table tbody tr")?.textContent.includes("is down: ")`)
	b.prefer("prefers-color-scheme", "dark")
	b.picture("not-ready")
}

// The server keeps the last hour, so that a page that is loaded later has it.
func TestPage_ShowsTheLastHour(t *testing.T) {
	_, b := openDemo(t)
	see := func() (labels []string) {
		b.await("four charts are shown", `document.querySelectorAll("#sparks svg[role=img] title").length === 4`)
		labels = b.each(`#sparks svg`, `(svg) => svg.getAttribute("aria-label")`)
		return labels
	}
	for i, want := range []string{"Turns a minute, the last hour: 0 to ", "Prompt tokens of follow-ups spared, the last hour: ", "Hits of follow-up turns, the last hour: ", "First token of hits that stream, the last hour: "} {
		if got := see(); !strings.HasPrefix(got[i], want) || strings.Contains(got[i], "–") {
			t.Errorf("chart %d is labelled %q, want %q …", i, got[i], want)
		}
	}
	if got := see()[3]; !strings.Contains(got, "newest with reuse ") || !strings.Contains(got, ", the same turns without ") {
		t.Errorf("the last chart is labelled %q", got)
	}
	// A minute of an hour ago, and gaps.
	event := `{"now":"2026-11-22T20:00:10Z","instances":[],"open_turns":0,"queue":{"to_begin":0,"for_instance":0},"records":[],"bounds_ms":[5,10],` +
		`"hour":[{"at":"2026-11-22T19:00:00Z","turns":900,"follow_ups":1,"follow_up_tokens":90,"hits":1,"saved_tokens":9,"timed":0,"ttft_ms":0,"ttft_without_ms":0},` +
		`{"at":"2026-11-22T19:01:00Z","turns":40,"follow_ups":10,"follow_up_tokens":48000,"hits":5,"saved_tokens":12000,"timed":4,"ttft_ms":400,"ttft_without_ms":2000},` +
		`{"at":"2026-11-22T20:00:00Z","turns":20,"follow_ups":4,"follow_up_tokens":1000,"hits":3,"saved_tokens":700,"timed":2,"ttft_ms":100,"ttft_without_ms":300}],` +
		`"totals":{"since":"2026-11-22T19:00:00Z","turns":0,"hits":0,"off":0,"misses":{},"follow_ups":0,"failed":0,"saved_tokens":0,"saved_seconds":0,` +
		`"ttft_hits":{"counts":[1,0,0],"sum_ms":0},"ttft_hits_without":{"counts":[1,0,0],"sum_ms":0}}}`
	b.shows(event)
	want := []string{
		"Turns a minute, the last hour: 0 to 40, newest 20",
		"Prompt tokens of follow-ups spared, the last hour: 25.0 % to 70.0 %, newest 70.0 %",
		"Hits of follow-up turns, the last hour: 50.0 % to 75.0 %, newest 75.0 %",
		"First token of hits that stream, the last hour: 50 ms to 500 ms, newest with reuse 50 ms, the same turns without 150 ms",
	}
	b.await("that hour is shown", `document.querySelector("#hour-turns")?.textContent === "20"`)
	if got := see(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("labels %q, want %q", got, want)
	}
}

// Rows of tiles have no gap at their end, and on a telephone the time to the first token needs no scrolling.
func TestPage_FitsItsScreen(t *testing.T) {
	_, b := openDemo(t)
	for _, width := range []int{360, 768, 1024, 1280, 1440, 1920} {
		b.size(width, 900)
		var rows map[string][]int
		b.eval(`Object.fromEntries([...document.querySelectorAll(".tiles")].map((grid) => [grid.id, [...grid.children].reduce((rows, tile) => {
			const top = Math.round(tile.getBoundingClientRect().top);
			if (rows.top === top) { rows.counts[rows.counts.length - 1]++; } else { rows.counts.push(1); }
			return { top, counts: rows.counts };
		}, { counts: [] }).counts]))`, &rows)
		if len(rows) == 0 {
			t.Error("no tiles")
		}
		for grid, counts := range rows {
			for _, n := range counts {
				if n != counts[0] {
					t.Errorf("%d px: rows of #%s have %v tiles", width, grid, counts)
				}
			}
		}
		if b.holds(`document.documentElement.scrollWidth > innerWidth`) {
			t.Errorf("%d px: the page is wider", width)
		}
		b.picture(fmt.Sprintf("wide-%d", width))
	}
	b.size(360, 780)
	var seen []float64
	b.eval(`[...document.querySelectorAll("#turns-table thead th")].filter((th) => th.textContent === "First token").map((th) => th.getBoundingClientRect().right)`, &seen)
	if len(seen) != 1 || seen[0] > 360 {
		t.Errorf("the column of the first token ends at %v of 360 px", seen)
	}
}

// Sentences of events may hold the text of another program.
func TestPage_ShowsEventsAsText(t *testing.T) {
	_, b := openDemo(t)
	text, err := json.Marshal(hostile)
	must(t, err)
	event := `{"now":"2026-11-22T20:00:00Z","instances":[],"open_turns":0,"queue":{"to_begin":0,"for_instance":0},"records":[],"bounds_ms":[5,10],` +
		`"ready":"store_down","why":` + string(text) + `,"program":{"version":` + string(text) + `,"replica":"r-1","reasons":{"__proto__":"x"}},` +
		`"events":[{"at":"2026-11-22T19:59:59Z","kind":"store","text":` + string(text) + `,"times":1200},{"at":"2026-11-22T19:59:58Z","kind":` + string(text) + `,"text":"b","times":1}],` +
		`"totals":{"since":"2026-11-22T19:00:00Z","turns":0,"hits":0,"off":0,"misses":{},"failed":0,"saved_tokens":0,"saved_seconds":0,` +
		`"ttft_hits":{"counts":[1,0,0],"sum_ms":2},"ttft_hits_without":{"counts":[0,0,0],"sum_ms":0}}}`
	b.shows(event)
	b.await("the events are shown", `document.querySelectorAll("#events-table tbody tr").length === 2`)
	for _, tc := range [][2]string{
		{"#events-table tbody tr td:last-child", hostile + " (1,200 times)"}, {"#readiness", "not ready: " + hostile}, {"#program", hostile + " on r-1"},
	} {
		if got := b.text(tc[0]); got != tc[1] {
			t.Errorf("%s says %q, want %q", tc[0], got, tc[1])
		}
	}
	if b.holds(`document.querySelector("img, main script")`) {
		t.Error("an event was taken for markup")
	}
}
