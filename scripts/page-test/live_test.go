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
func (b *tab) shownCounts() map[string]float64 {
	b.t.Helper()
	var rows [][]string
	b.eval(`[...document.querySelectorAll("#reuse-table tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent))`, &rows)
	counts := map[string]float64{}
	for _, row := range rows {
		_, way, _ := strings.Cut(row[0], " ") // behind its glyph
		counts[way] = number(b.t, row[3])
	}
	return counts
}

// figure is a number among the figures of now.
func (b *tab) figure(name string) float64 {
	b.t.Helper()
	return number(b.t, b.text("#figure-"+name))
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
	b.live()
	b.await("the fleet is up", `document.querySelectorAll("#fleet-table tbody tr").length === 4 &&
		[...document.querySelectorAll("#fleet-table tbody tr")].every((row) => row.cells[2].textContent.includes("up") && row.cells[10].textContent === "sim")`)
	b.await("hits are shown", `document.querySelectorAll("#turns-table td .hit").length >= 3`)
	demo.talked()
	demo.turn("sim", "mine", question, demo.turn("sim", "mine", question), "Thank you.") // a hit
	b.await("what decode keeps for the next turn is shown", `[...document.querySelectorAll("#pinned-table tbody tr")].some((row) => /[1-9]/.test(row.cells[2].textContent))`)
	demo.awaitTurns(demo.held + 2)
	b.await("all turns are shown", counts(demo.held+2)+" && "+lists(demo.held+2))
	fleet := b.each(`#fleet-table tbody tr`, `(row) => row.cells[0].textContent + " " + row.cells[1].textContent`)
	if got := strings.Join(fleet, ", "); got != "prefill-1 prefill, prefill-2 prefill, decode-1 decode, decode-2 decode" {
		t.Errorf("fleet: %s", got)
	}
	if got := b.text("#turns-table tbody tr:first-child td"); !strings.Contains(got, "hit") {
		t.Errorf("the newest turn is shown as %q, want a hit", got)
	}
	if head := b.text("#ttft-hits h3"); !strings.HasPrefix(head, "Hits: 3 turns, ") {
		t.Errorf("TTFT: %q", head)
	}
	var pinned []string
	b.eval(`[...document.querySelectorAll("#pinned-table tbody tr")].flatMap((row) => [...row.cells].slice(2).map((cell) => cell.textContent))`, &pinned)
	if len(pinned) != 6 || number(t, pinned[1])*2 != number(t, pinned[2]) {
		t.Errorf("pinned, budget and capacity of two decode instances: %q", pinned)
	}
	b.agrees(demo)
}

// agrees compares the page's figures with what the program tells Prometheus, and with the journal, while no turn is under way.
func (b *tab) agrees(s *system) {
	b.t.Helper()
	shown := b.shownCounts()
	kept, saved := s.counted()
	if !maps.Equal(shown, kept) || b.figure("saved-tokens") != saved || saved == 0 {
		b.t.Errorf("the page shows %v and %g saved tokens, the journal has %v and %g", shown, b.figure("saved-tokens"), kept, saved)
	}
	ways, sum := map[string]float64{}, 0.0
	for way, n := range s.scraped("carryover_turns_total") {
		if n != 0 { // those are served from the start, for rates; the page has rows of what there was
			ways[strings.TrimSuffix(way, " none")] += n
			sum += n
		}
	}
	for way := range shown { // the page has a row for hits and for off also where there were none
		ways[way] += 0
	}
	read := 0.0
	for _, n := range s.scraped("carryover_reuse_tokens_read_total") {
		read += n
	}
	if !maps.Equal(shown, ways) || b.figure("turns") != sum || b.figure("saved-tokens") != read {
		b.t.Errorf("the page shows %v, %g turns and %g saved tokens; /metrics has %v, %g and %g",
			shown, b.figure("turns"), b.figure("saved-tokens"), ways, sum, read)
	}
}

func TestPage_FiltersTurns(t *testing.T) {
	demo, b := openDemo(t)
	var instance string // which of them have turns is the policies' choice
	b.eval(`[...document.getElementById("by-instance").options].at(-1).value`, &instance)
	for _, tc := range []struct {
		filter, value string
		want          string // what every row that is left says, and no other
	}{
		{"by-outcome", "hit", "hit"}, {"by-reason", "first_turn", "first turn"}, {"by-instance", instance, instance},
		{"by-status", "2xx", "200"}, {"by-time", "1h", "200"},
	} {
		b.choose(tc.filter, tc.value)
		hidden := b.each(`#turns-table tbody tr:not(.record)[hidden]`, `(row) => row.textContent`)
		left := b.each(`#turns-table tbody tr:not(.record):not([hidden])`, `(row) => row.textContent`)
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
		if said, want := b.text("#said"), fmt.Sprintf("%d of the last %g turns", len(left), demo.held); said != want {
			t.Errorf("said %q, want %q", said, want)
		}
		b.choose(tc.filter, "")
	}
	// What the page has no more, the listener finds: it is shown while it is chosen.
	b.answerFor("/admin/turns", stub{200, "application/json", `{"turns":[{"turn":"old","began":"2026-01-01T10:00:00Z","duration_ms":5,"outcome":"miss","status":502,"blame":"d-gone"}]}`})
	b.choose("by-status", "failed")
	b.await("the older turn is shown", `document.querySelector("#turns-table tbody tr:not(.record):not([hidden])")?.textContent.includes("502")`)
	b.choose("by-status", "")
	b.await("it is gone", lists(demo.held))
}

// choose chooses an option, as a user does.
func (b *tab) choose(id, value string) {
	b.t.Helper()
	b.eval(`(() => { const select = document.getElementById("`+id+`"); select.value = "`+value+`";
		if (select.value !== "`+value+`") throw new Error("no such choice"); select.dispatchEvent(new Event("change")); })()`, nil)
}

// Not beside others, one of which might be given the port meanwhile.
func TestPage_ConnectsAgainAfterTheProgramHasEnded(t *testing.T) {
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	demo.turn("sim", "mine", question)
	b.await("all turns are shown", counts(demo.held+1)) // one more than there will be
	since := b.text("#uptime")
	demo.kill()
	b.await("the loss is told", `document.querySelector("#status").dataset.state === "lost"`)
	if rows := b.text("#turns-table tbody"); !strings.Contains(rows, "hit") {
		t.Error("what was shown has gone")
	}
	again := startDemo(t, strings.TrimSuffix(strings.TrimPrefix(demo.page, "http://"), "/")).talked()
	b.live()
	b.await("the new program's turns are shown, and no others", counts(again.held)+" && "+lists(again.held))
	if now := b.text("#uptime"); now == since {
		t.Errorf("it is shown as the same program: %s", now)
	}
	b.agrees(again)
}

func TestPage_StandsStillWhilePausedOrHidden(t *testing.T) {
	demo, b := openDemo(t)
	const hide = `Object.defineProperty(document, "hidden", { value: %t, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`
	const pause = `document.getElementById("pause").click()`
	for turns, way := range [][2]string{{pause, pause}, {fmt.Sprintf(hide, true), fmt.Sprintf(hide, false)}} {
		b.eval(way[0], nil)
		if state := b.text("#status-text"); turns == 0 && state != "paused" {
			t.Errorf("state %q", state)
		}
		had := demo.held + float64(turns)
		demo.turn("sim", "mine", "SAY something")
		demo.awaitTurns(had + 1)
		if shown := b.text("#figure-turns"); shown != fmt.Sprint(had) {
			t.Errorf("the page shows %s turns", shown)
		}
		b.eval(way[1], nil)
		b.await("it goes on", counts(had+1))
	}
}

func TestPage_SaysWhyNothingIsLive(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).blank(t, demo.page)
	b.answerFor("/admin/live", stub{503, "application/json", `{"error":{"message":"full"}}`})
	b.do("Page.navigate", map[string]any{"url": demo.page})
	b.await("it waits for a place", `document.querySelector("#status-text").textContent.startsWith("too many look on")`)
	b.answerItself()
	b.live() // it asked again
	b.answerFor("/admin/live", stub{200, "text/event-stream", "event: snapshot\ndata: <html>\n\n"})
	b.do("Page.reload", nil)
	b.await("an answer of something else is no connection", `document.querySelector("#status").dataset.state === "lost"`)
	b.answerFor("/admin/live", stub{403, "application/json", `{"error":{"message":"Not <b>you</b>."}}`})
	b.await("it is refused", `document.querySelector("#status-text").textContent === "refused: Not <b>you</b>."`)
}

// Each state that carryover_instance_state has (docs/behaviour.md) stands in the table of instances by its word, behind a mark of its own.
func TestPage_MarksEachStateOfAnInstance(t *testing.T) {
	_, b := openDemo(t)
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
	b.shows(event)
	b.await("all instances are shown", `document.querySelectorAll("#fleet-table tbody tr").length === 8`)
	shown := b.text("#fleet-table tbody")
	for state, mark := range marks {
		if want := mark + " " + strings.ReplaceAll(state, "_", " "); !strings.Contains(shown, want) {
			t.Errorf("%s is not shown as %q: %q", state, want, shown)
		}
	}
}
