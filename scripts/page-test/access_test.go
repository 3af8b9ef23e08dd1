package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// node is one of the accessibility tree: what a screen reader has of the page.
type node struct {
	Ignored                 bool
	Role, Name, Description struct{ Value any }
}

func (b *tab) accessible() (nodes []node) {
	b.t.Helper()
	var tree struct{ Nodes []node }
	must(b.t, json.Unmarshal(b.do("Accessibility.getFullAXTree", nil), &tree))
	for _, n := range tree.Nodes {
		if !n.Ignored {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func TestPage_EverythingHasAName(t *testing.T) {
	_, b := openDemo(t)
	b.eval(`document.querySelector("#turns-table button").click(); document.querySelector("details").open = true`, nil)
	named := []string{
		"button", "combobox", "MenuListPopup", "textbox", "link", "region", "table", "image", "form", "heading", "columnheader", "rowheader", "option",
		"MenuListOption", "DisclosureTriangle",
	}
	found := map[string]int{}
	for _, n := range b.accessible() {
		role, name := fmt.Sprint(n.Role.Value), fmt.Sprint(n.Name.Value)
		found[role]++
		if slices.Contains(named, role) && role != "MenuListPopup" && (name == "" || name == "<nil>") {
			t.Errorf("a %s has no name", role)
		}
	}
	for role, least := range map[string]int{
		"banner": 1, "main": 1, "region": 8, "table": 5, "columnheader": 30, "rowheader": 20, "button": 12, "combobox": 4, "textbox": 1, "image": 2,
		"heading": 8, "status": 2, "group": 1,
	} {
		if found[role] < least {
			t.Errorf("%d of role %s, want at least %d; all: %v", found[role], role, least, found)
		}
	}
	if live := b.text("#said[aria-live=polite]"); strings.Contains(live, "turns") {
		t.Error("turns that arrive are read out")
	}
}

// focused says what has the focus and whether that can be seen.
const focused = `(() => {
	const e = document.activeElement, style = getComputedStyle(e);
	const name = e.getAttribute("aria-label") ?? (e.labels?.length ? e.labels[0].textContent : e.textContent);
	return { id: e.id, tag: e.tagName, name: name.trim(), turn: e.matches("#turns-table tr:not(.record) button"),
		seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, body: e === document.body };
})()`

type focus struct {
	ID, Tag, Name    string
	Turn, Seen, Body bool
}

func TestPage_IsUsedByKeyboardAlone(t *testing.T) {
	demo, b := openDemo(t)
	var at focus
	visited := []string{}
	for range 40 {
		b.press("Tab")
		b.eval(focused, &at)
		visited = append(visited, at.Tag+" "+at.Name)
		if !at.Seen {
			t.Errorf("the focus on %s %q can't be seen", at.Tag, at.Name)
		}
		if at.Turn {
			break
		}
	}
	if !at.Turn || visited[0] != "A Skip to recent turns" {
		t.Fatalf("no turn was reached by way of %q", visited)
	}
	b.press("Enter")
	b.await("the record is open", `document.activeElement.getAttribute("aria-expanded") === "true" &&
		!document.getElementById(document.activeElement.getAttribute("aria-controls")).hidden`)
	if record := b.text("#turns-table tr.record:not([hidden])"); !strings.Contains(record, "/v1/chat/completions") || !strings.Contains(record, "First token") {
		t.Errorf("record: %q", record)
	}
	// A turn that arrives above takes neither the focus nor the record.
	demo.turn("sim", "mine", "SAY something")
	b.await("it is shown", lists(demo.held+1))
	if !b.holds(`document.activeElement.matches("#turns-table button") && document.activeElement.getAttribute("aria-expanded") === "true"`) {
		t.Error("the focus or the record has gone")
	}
	b.picture("record")
	b.press("Enter")
	b.await("the record is closed", `document.querySelectorAll("#turns-table tr.record:not([hidden])").length === 0`)
}

// contrast finds texts that stand out from their ground by less than 4.5 to 1 (WCAG 2.2, 1.4.3).
const contrast = `(() => {
	const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
	const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
		.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
	const weak = [];
	for (const e of document.querySelectorAll("body *")) {
		const own = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim() !== "");
		if (!own || !e.checkVisibility()) continue;
		const style = getComputedStyle(e);
		const [a, b] = [light(rgb(e.closest("svg") ? style.fill : style.color)), light(ground(e))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) weak.push(e.tagName + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 20) + " " + ratio.toFixed(2));
	}
	return weak;
})()`

func TestPage_IsLegibleInLightAndDark(t *testing.T) {
	demo, b := openDemo(t)
	ground := map[string]string{}
	see := func(theme string) {
		var weak []string
		b.eval(contrast, &weak)
		if len(weak) > 0 {
			t.Errorf("%s: hard to read: %q", theme, weak)
		}
		var colour string
		b.eval(`getComputedStyle(document.body).backgroundColor`, &colour)
		ground[theme] = colour
		b.picture(theme)
	}
	for _, theme := range []string{"light", "dark"} {
		b.prefer("prefers-color-scheme", theme)
		see(theme)
	}
	if ground["light"] == ground["dark"] {
		t.Errorf("both themes are %s", ground["light"])
	}
	// The switch outdoes the system, also after the page is loaded again.
	b.choose("theme", "light")
	b.do("Page.reload", nil)
	b.await("it is loaded again", lists(demo.held))
	see("chosen")
	if ground["chosen"] != ground["light"] {
		t.Errorf("light was chosen and the ground is %s", ground["chosen"])
	}
	b.size(380, 800)
	if b.holds(`document.documentElement.scrollWidth > innerWidth`) {
		t.Error("on a narrow screen the page is wider than that")
	}
	b.picture("narrow")
}

func TestPage_MovesOnlyWhereThatIsWanted(t *testing.T) {
	demo, b := openDemo(t)
	demo.turn("sim", "mine", "SAY something")
	b.await("a new turn is marked", `document.querySelectorAll("#turns-table tr.new").length === 1`)
	for wish, want := range map[string]string{"no-preference": "arrive", "reduce": "none"} {
		b.prefer("prefers-reduced-motion", wish)
		var moves string
		b.eval(`getComputedStyle(document.querySelector("#turns-table tr.new")).animationName`, &moves)
		if moves != want {
			t.Errorf("%s: animation %s, want %s", wish, moves, want)
		}
	}
}
