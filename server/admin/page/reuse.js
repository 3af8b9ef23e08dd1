// The figures of now, and reuse by reason.

import { bar, byId, h, Table, tagged, text } from "./dom.js";
import { meaning } from "./reasons.js";
import { count, percent, span } from "./format.js";
import { countsOf, followUps, History, hits, kindsOf, promptTokens, savedTokens, turnsOf } from "./counts.js";

const lately = 5 * 60_000; // ms

// spared is the share of the prompt tokens of follow-up turns that prefill did not compute because of what was reused.
function spared(counts) {
  return counts.get(savedTokens) / counts.get(promptTokens);
}

function shared(n, all, kind) {
  return h("span", {}, bar(all > 0 ? n / all : 0, kind), percent(n / all));
}

function columns() {
  return [
    { head: "Outcome and reason", title: "What became of the reuse of turns; each reason says what it means", class: "wide", key: (row) => row.kind, make: named },
    { head: "Last 5 min", title: "Turns that ended lately", class: "number", text: (row) => count(row.late) },
    { head: "Share", title: "Of the turns that ended lately", class: "number", text: (row) => percent(row.late / row.allLate) },
    { head: "Since start", title: "Turns that ended since the program began", class: "number", text: (row) => count(row.ever) },
    { head: "Share", title: "Of the turns since the start", class: "number", key: (row) => `${row.ever}/${row.allEver}`, make: (row) => shared(row.ever, row.allEver, row.outcome) },
  ];
}

// named is the name of a row, with what its reason means.
function named(row) {
  const words = tagged(row.outcome, row.outcome, row.kind.replaceAll("_", " "));
  const means = meaning(row.kind.slice(row.outcome.length + 1));
  const found = row.outcome === "prefix" ? "Prefill's own caches had a part of the prompt. No hit: " : "";
  if (row.kind === "hit") {
    return h("div", { title: "Prefill computed less because of what was reused. Hits that saved nothing have rows with their reason" }, words);
  }
  return means === undefined ? words : h("div", { title: found + means }, words);
}

// figures are what stands first: a name, a number, and what is to be said of it.
function figures(s, late, ever) {
  const t = s.totals;
  const of = (counts) => `of ${count(counts.get(promptTokens))} prompt tokens of follow-up turns`;
  const saved = t.saved_seconds < 100 ? `${t.saved_seconds.toFixed(2)} s` : span(t.saved_seconds * 1000);
  return [
    ["rate-late", `Prefill spared, last ${span(late.over)}`, percent(spared(late.counts)), of(late.counts)],
    ["rate-ever", "Prefill spared since start", percent(spared(ever)), of(ever)],
    ["saved-time", "Prefill time saved", saved, "at the speed of each instance"],
    ["saved-tokens", "Prefill saved", count(t.saved_tokens), "tokens of prompts"],
    ["turns", "Turns", count(t.turns), `${count(ever.get(hits))} hits of ${count(ever.get(followUps))} follow-ups, ${count(ever.get("hit"))} saved something`],
    ["failed", "Failed turns", count(t.failed), "their client got part of an answer, or an error that was not its own request's"],
    ["open", "Open turns", count(s.open_turns), "in work now"],
    ["queue", "Queue", count(s.queue.to_begin + s.queue.for_instance), `${count(s.queue.to_begin)} to begin, ${count(s.queue.for_instance)} for an instance`],
  ];
}

export class Reuse {
  constructor() {
    this.history = new History(lately);
    this.table = new Table(byId("reuse-table"), columns());
    this.figures = new Map();
  }

  show(snapshot) {
    this.history.add(snapshot);
    const late = this.history.lately();
    const ever = countsOf(snapshot.totals);
    for (const [name, ...words] of figures(snapshot, late, ever)) {
      this.#figure(name, words);
    }
    text(this.table.heads[1], `Last ${span(late.over)}`);
    const [allLate, allEver] = [turnsOf(late.counts), turnsOf(ever)];
    const rows = kindsOf(ever).map((kind) => ({
      kind, outcome: kind.split(" ")[0], late: late.counts.get(kind) ?? 0, ever: ever.get(kind), allLate, allEver,
    }));
    const place = { hit: 0, prefix: 1, miss: 2, off: 3 };
    rows.sort((a, b) => place[a.outcome] - place[b.outcome] || b.ever - a.ever || (a.kind < b.kind ? -1 : 1));
    this.table.show(rows, (row) => row.kind);
  }

  #figure(name, words) {
    let parts = this.figures.get(name);
    if (parts === undefined) {
      parts = [h("dt"), h("strong", { id: `figure-${name}` }), h("span")];
      byId("figures").append(h("div", {}, parts[0], h("dd", {}, parts[1], parts[2])));
      this.figures.set(name, parts);
    }
    parts.forEach((part, i) => text(part, words[i]));
  }
}
