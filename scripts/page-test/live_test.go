package page

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
)

// question makes an answer that is long enough to be reused.
const question = "SAY the page for operators shows what became of each turn, how much of its prompt was read from decode, and why not more, " +
	"and it shows it as soon as the turn has ended, while another turn may be under way"

// shownCounts are the page's numbers of turns since the start, by outcome and reason.
func (b *tab) shownCounts(t *testing.T) map[string]float64 {
	t.Helper()
	var rows [][]string
	b.eval(t, `[...document.querySelectorAll("#reuse-table tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent))`, &rows)
	counts := map[string]float64{}
	for _, row := range rows {
		_, way, _ := strings.Cut(row[0], " ") // behind its glyph
		counts[way] = number(t, row[3])
	}
	return counts
}

// figure is a number among the figures of now.
func (b *tab) figure(t *testing.T, name string) float64 {
	t.Helper()
	return number(t, b.text(t, "#figure-"+name))
}

// number reads a number as the page writes it.
func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.NewReplacer(",", "", " %", "", " s", "").Replace(text)), 64)
	if err != nil {
		t.Errorf("no number: %v", err)
	}
	return n
}

func TestPage_ShowsADemoAsItGoes(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0") // whose conversation goes on while the page is looked at
	b := startChromium(t).open(t, demo.page)
	b.live(t)
	b.await(t, "the fleet is up", `document.querySelectorAll("#fleet-table tbody tr").length === 4 &&
		[...document.querySelectorAll("#fleet-table tbody tr")].every((row) => row.cells[2].textContent.includes("up") && row.cells[10].textContent === "sim")`)
	b.await(t, "hits are shown", `document.querySelectorAll("#turns-table td .hit").length >= 3`)
	demo.talked()
	demo.turn("sim", "mine", question, demo.turn("sim", "mine", question), "Thank you.") // a hit
	b.await(t, "what decode keeps for the next turn is shown", `[...document.querySelectorAll("#pinned-table tbody tr")].some((row) => /[1-9]/.test(row.cells[2].textContent))`)
	demo.awaitTurns(demo.held + 2)
	b.await(t, "all turns are shown", counts(demo.held+2)+" && "+lists(demo.held+2))
	var fleet []string
	b.eval(t, `[...document.querySelectorAll("#fleet-table tbody tr")].map((row) => row.cells[0].textContent + " " + row.cells[1].textContent)`, &fleet)
	if got := strings.Join(fleet, ", "); got != "prefill-1 prefill, prefill-2 prefill, decode-1 decode, decode-2 decode" {
		t.Errorf("fleet: %s", got)
	}
	if got := b.text(t, "#turns-table tbody tr:first-child td"); !strings.Contains(got, "hit") {
		t.Errorf("the newest turn is shown as %q, want a hit", got)
	}
	if head := b.text(t, "#ttft-hits h3"); !strings.HasPrefix(head, "Hits: 3 turns, ") {
		t.Errorf("TTFT: %q", head)
	}
	var pinned []string
	b.eval(t, `[...document.querySelectorAll("#pinned-table tbody tr")].flatMap((row) => [...row.cells].slice(2).map((cell) => cell.textContent))`, &pinned)
	if len(pinned) != 6 || number(t, pinned[1])*2 != number(t, pinned[2]) {
		t.Errorf("pinned, budget and capacity of two decode instances: %q", pinned)
	}
	b.agrees(t, demo)
}

// agrees compares the page's figures with what the program tells Prometheus, and with the journal, while no turn is under way.
func (b *tab) agrees(t *testing.T, s *system) {
	t.Helper()
	shown := b.shownCounts(t)
	kept, saved := s.counted()
	if !maps.Equal(shown, kept) || b.figure(t, "saved-tokens") != saved || saved == 0 {
		t.Errorf("the page shows %v and %g saved tokens, the journal has %v and %g", shown, b.figure(t, "saved-tokens"), kept, saved)
	}
	ways, sum := map[string]float64{}, 0.0
	for _, one := range s.scraped("carryover_turns_total") {
		way := one.labels["outcome"]
		if one.labels["reason"] != "none" {
			if one.value == 0 { // served from the start, for rates; the page has rows of what there was
				continue
			}
			way = spoken(way + " " + one.labels["reason"])
		}
		ways[way] += one.value
		sum += one.value
	}
	for way := range shown { // the page has a row for hits and for off also where there were none
		ways[way] += 0
	}
	read := 0.0
	for _, one := range s.scraped("carryover_reuse_tokens_read_total") {
		read += one.value
	}
	if !maps.Equal(shown, ways) || b.figure(t, "turns") != sum || b.figure(t, "saved-tokens") != read {
		t.Errorf("the page shows %v, %g turns and %g saved tokens; /metrics has %v, %g and %g",
			shown, b.figure(t, "turns"), b.figure(t, "saved-tokens"), ways, sum, read)
	}
}

func TestPage_FiltersTurns(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	b.live(t)
	b.await(t, "all turns are shown", lists(demo.held))
	var instance string // which of them have turns is the policies' choice
	b.eval(t, `[...document.getElementById("by-instance").options].at(-1).value`, &instance)
	for _, tc := range []struct {
		filter, value string
		want          string // what every row that is left says, and no other
	}{
		{"by-outcome", "hit", "hit"}, {"by-reason", "first_turn", "first turn"}, {"by-instance", instance, instance},
		{"by-status", "2xx", "200"}, {"by-time", "1h", "200"},
	} {
		b.choose(t, tc.filter, tc.value)
		var left, hidden []string
		b.eval(t, `[...document.querySelectorAll("#turns-table tbody tr:not(.record)[hidden]")].map((row) => row.textContent)`, &hidden)
		b.eval(t, `[...document.querySelectorAll("#turns-table tbody tr:not(.record):not([hidden])")].map((row) => row.textContent)`, &left)
		if len(left) == 0 || float64(len(left)+len(hidden)) != demo.held {
			t.Errorf("%s %s: %d turns are shown and %d hidden of %g", tc.filter, tc.value, len(left), len(hidden), demo.held)
		}
		for _, row := range hidden {
			if strings.Contains(row, tc.want) {
				t.Errorf("%s %s hides %q", tc.filter, tc.value, row)
			}
		}
		for _, row := range left {
			if !strings.Contains(row, tc.want) {
				t.Errorf("%s %s shows %q", tc.filter, tc.value, row)
			}
		}
		if said, want := b.text(t, "#said"), fmt.Sprintf("%d of the last %g turns", len(left), demo.held); said != want {
			t.Errorf("said %q, want %q", said, want)
		}
		b.choose(t, tc.filter, "")
	}
}

// What the page has no more, the listener finds: it is shown while it is chosen.
func TestPage_FindsOlderTurns(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	b.live(t)
	b.await(t, "all turns are shown", lists(demo.held))
	b.answerFor(t, "/admin/turns", stub{200, "application/json", `{"turns":[{"turn":"old","began":"2026-01-01T10:00:00Z","duration_ms":5,"outcome":"miss","status":502,"blame":"d-gone"}]}`})
	b.choose(t, "by-status", "failed")
	b.await(t, "the older turn is shown", `document.querySelector("#turns-table tbody tr:not(.record):not([hidden])")?.textContent.includes("502")`)
	b.choose(t, "by-status", "")
	b.await(t, "it is gone", lists(demo.held))
}

// choose chooses an option, as a user does.
func (b *tab) choose(t *testing.T, id, value string) {
	t.Helper()
	b.eval(t, `(() => { const select = document.getElementById("`+id+`"); select.value = "`+value+`";
		if (select.value !== "`+value+`") throw new Error("no such choice"); select.dispatchEvent(new Event("change")); })()`, nil)
}

// Not beside others, one of which might be given the port meanwhile.
func TestPage_ConnectsAgainAfterTheProgramHasEnded(t *testing.T) {
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	demo.turn("sim", "mine", question)
	b.await(t, "all turns are shown", counts(demo.held+1)) // one more than there will be
	since := b.text(t, "#uptime")
	demo.kill()
	b.await(t, "the loss is told", `document.querySelector("#status").dataset.state === "lost"`)
	if rows := b.text(t, "#turns-table tbody"); !strings.Contains(rows, "hit") {
		t.Error("what was shown has gone")
	}
	again := startDemo(t, strings.TrimSuffix(strings.TrimPrefix(demo.page, "http://"), "/")).talked()
	b.live(t)
	b.await(t, "the new program's turns are shown, and no others", counts(again.held)+" && "+lists(again.held))
	if now := b.text(t, "#uptime"); now == since {
		t.Errorf("it is shown as the same program: %s", now)
	}
	b.agrees(t, again)
}

func TestPage_CanBePaused(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	b.await(t, "all turns are shown", counts(demo.held))
	b.eval(t, `document.getElementById("pause").click()`, nil)
	if state := b.text(t, "#status-text"); state != "paused" {
		t.Errorf("state %q", state)
	}
	demo.turn("sim", "mine", "SAY something")
	demo.awaitTurns(demo.held + 1)
	if turns := b.text(t, "#figure-turns"); turns != fmt.Sprint(demo.held) {
		t.Errorf("a paused page shows %s turns", turns)
	}
	b.eval(t, `document.getElementById("pause").click()`, nil)
	b.await(t, "it goes on", counts(demo.held+1))
}

func TestPage_LeavesItsPlaceToOthersWhileItIsHidden(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	b.await(t, "all turns are shown", counts(demo.held))
	hide := func(hidden string) {
		b.eval(t, `Object.defineProperty(document, "hidden", { value: `+hidden+`, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`, nil)
	}
	hide("true")
	demo.turn("sim", "mine", "SAY something")
	demo.awaitTurns(demo.held + 1)
	if turns := b.text(t, "#figure-turns"); turns != fmt.Sprint(demo.held) {
		t.Errorf("a hidden page shows %s turns", turns)
	}
	hide("false")
	b.await(t, "it goes on", counts(demo.held+1))
}

func TestPage_SaysWhyNothingIsLive(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).blank(t, demo.page)
	b.answerFor(t, "/admin/live", stub{503, "application/json", `{"error":{"message":"full"}}`})
	b.do(t, "Page.navigate", map[string]any{"url": demo.page})
	b.await(t, "it waits for a place", `document.querySelector("#status-text").textContent.startsWith("too many look on")`)
	b.answerItself(t)
	b.live(t) // it asked again
	b.answerFor(t, "/admin/live", stub{200, "text/event-stream", "event: snapshot\ndata: <html>\n\n"})
	b.do(t, "Page.reload", nil)
	b.await(t, "an answer of something else is no connection", `document.querySelector("#status").dataset.state === "lost"`)
	b.answerFor(t, "/admin/live", stub{403, "application/json", `{"error":{"message":"Not <b>you</b>."}}`})
	b.await(t, "it is refused", `document.querySelector("#status-text").textContent === "refused: Not <b>you</b>."`)
}

func TestPage_SaysWhyAnInstanceIsDown(t *testing.T) {
	t.Parallel()
	s := startServing(t, "sim", "")
	b := startChromium(t).open(t, s.page)
	b.await(t, "both are up", `[...document.querySelectorAll("#fleet-table tbody tr")].filter((row) => row.cells[2].textContent.trim() === "● up").length === 2`)
	s.instances["prefill"].kill()
	b.await(t, "prefill is down, and it says why", `/down.*(refused connections|health probes)/.test(document.querySelector("#fleet-table tbody tr").cells[2].textContent)`)
	b.prefer(t, "prefers-color-scheme", "dark")
	b.picture(t, "down")
}

// Each state that carryover_instance_state has (docs/behaviour.md) stands in the table of instances by its word, behind a mark of its own.
func TestPage_MarksEachStateOfAnInstance(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	b.live(t)
	marks := map[string]string{
		"up": "●", "down": "✕", "open": "✕", "half_open": "◑", "ejected": "▽", "paused": "‖", "draining": "◐", "quarantined": "⊘",
	}
	var instances []string
	for state := range marks {
		instances = append(instances, `{"role":"decode","name":"d-`+state+`","url":"http://d","state":"`+state+`","in_flight":0,"pinned_tokens":0}`)
	}
	event := `{"now":"2026-11-22T20:00:00Z","instances":[` + strings.Join(instances, ",") + `],"open_turns":0,"queue":{"to_begin":0,"for_instance":0},` +
		`"records":[],"bounds_ms":[5,10],"totals":{"since":"2026-11-22T19:00:00Z","turns":1,"hits":1,"off":0,"misses":{},"failed":0,` +
		`"saved_tokens":0,"saved_seconds":0,"ttft_hits":{"counts":[1,0,0],"sum_ms":2},"ttft_hits_without":{"counts":[0,0,0],"sum_ms":0}}}`
	b.answerFor(t, "/admin/live", stub{200, "text/event-stream", "event: snapshot\ndata: " + event + "\n\n"})
	b.do(t, "Page.reload", nil)
	b.await(t, "all instances are shown", `document.querySelectorAll("#fleet-table tbody tr").length === 8`)
	shown := b.text(t, "#fleet-table tbody")
	for state, mark := range marks {
		if want := mark + " " + strings.ReplaceAll(state, "_", " "); !strings.Contains(shown, want) {
			t.Errorf("%s is not shown as %q: %q", state, want, shown)
		}
	}
}
