// The figures of now, and reuse by reason.

import { bar, byId, h, Table, tagged, text } from "./dom.js";
import { meaning } from "./reasons.js";
import { count, percent, span } from "./format.js";
import { countsOf, followUps, History, turnsOf } from "./counts.js";

const lately = 5 * 60_000; // ms

// rate is the share of hits among the turns that could have been hits.
function rate(counts) {
  return (counts.get("hit") ?? 0) / counts.get(followUps);
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
  return means === undefined ? words : h("div", { title: found + means }, words);
}

// figures are what stands first: a name, a number, and what is to be said of it.
function figures(s, late, ever) {
  const t = s.totals;
  const wanted = (counts) => `of ${count(counts.get(followUps))} follow-up turns`;
  const saved = t.saved_seconds < 100 ? `${t.saved_seconds.toFixed(2)} s` : span(t.saved_seconds * 1000);
  return [
    ["rate-late", `Reuse, last ${span(late.over)}`, percent(rate(late.counts)), wanted(late.counts)],
    ["rate-ever", "Reuse since start", percent(rate(ever)), wanted(ever)],
    ["turns", "Turns", count(t.turns), `${count(t.hits)} hits, ${count(t.off)} wanted none`],
    ["failed", "Failed turns", count(t.failed), "their client got part of an answer, or an error that was not its own request's"],
    ["saved-tokens", "Prefill saved", count(t.saved_tokens), "tokens of prompts"],
    ["saved-time", "Prefill time saved", saved, "at the speed of each instance"],
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
    const rows = [...ever.keys()].filter((kind) => kind !== followUps).map((kind) => ({
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
