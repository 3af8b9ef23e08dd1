// The last hour, a point a minute, as small charts.

import { byId, h, text, v } from "./dom.js";
import { count, milliseconds, none, percent } from "./format.js";

const minute = 60_000; // ms
const length = 60; // minutes
const width = 236;
const height = 40;

const share = (part, all) => (all > 0 ? part / all : undefined);

// The charts: an id, a name, how a value is written, and the lines, each with a class, a name and its value of a minute. A minute may have
// no value, such as a share of no turns.
const charts = [
  ["turns", "Turns a minute", count, [["off", "", (m) => m.turns]]],
  ["spared", "Prompt tokens of follow-ups spared", percent, [["hit", "", (m) => share(m.saved_tokens, m.follow_up_tokens)]], 1],
  ["hits", "Hits of follow-up turns", percent, [["off", "", (m) => share(m.hits, m.follow_ups)]], 1],
  ["ttft", "First token of hits that stream", milliseconds, [
    ["hit", "with reuse", (m) => share(m.ttft_ms, m.timed)], ["off", "the same turns without", (m) => share(m.ttft_without_ms, m.timed)],
  ]],
];

const nothing = { turns: 0, follow_ups: 0, follow_up_tokens: 0, hits: 0, saved_tokens: 0, timed: 0, ttft_ms: 0, ttft_without_ms: 0 };

export class Hour {
  #minutes = new Map(); // by their beginning
  #tiles = new Map();
  #drawn = "";

  clear() {
    this.#minutes.clear();
  }

  show({ now, hour }) {
    for (const m of hour ?? []) {
      this.#minutes.set(Date.parse(m.at), m);
    }
    const newest = Math.floor(Date.parse(now) / minute) * minute;
    const from = newest - (length - 1) * minute;
    for (const at of this.#minutes.keys()) {
      if (at < from) {
        this.#minutes.delete(at);
      }
    }
    const points = Array.from({ length }, (_, i) => this.#minutes.get(from + i * minute) ?? nothing);
    const drawn = JSON.stringify([newest, points]);
    if (drawn === this.#drawn) {
      return;
    }
    this.#drawn = drawn;
    for (const chart of charts) {
      this.#tile(chart, points);
    }
  }

  #tile([id, name, write, lines, top], points) {
    let tile = this.#tiles.get(id);
    if (tile === undefined) {
      tile = { value: h("strong", { id: `hour-${id}` }), note: h("span"), chart: h("div") };
      byId("sparks").append(h("div", {}, h("dt", {}, name), h("dd", {}, tile.value, tile.note, tile.chart)));
      this.#tiles.set(id, tile);
    }
    const series = lines.map(([kind, label, of]) => ({ kind, label, values: points.map(of) }));
    const known = series.flatMap(({ values }) => values.filter((value) => value !== undefined));
    const most = top ?? Math.max(...known, 0);
    const newest = series.map(({ values }) => values.findLast((value) => value !== undefined));
    text(tile.value, write(newest[0]));
    const range = known.length > 0 ? `${write(Math.min(...known))} to ${write(Math.max(...known))}` : "no turns yet";
    text(tile.note, lines.length > 1 ? `${write(newest[1])} ${lines[1][1]}` : range);
    tile.chart.replaceChildren(spark(words(name, range, lines, newest, write), series, most));
  }
}

function words(name, range, lines, newest, write) {
  const last = lines.map(([, label], i) => [label, newest[i] === undefined ? none : write(newest[i])].filter(Boolean).join(" "));
  return `${name}, the last hour: ${range}, newest ${last.join(", ")}`;
}

// spark draws lines. A gap is where a minute has no value; a value between two gaps is a dot.
function spark(label, series, most) {
  const x = (i) => 2 + (i / (length - 1)) * (width - 4);
  const y = (value) => height - 2 - (most > 0 ? value / most : 0) * (height - 5);
  const parts = series.flatMap(({ kind, values }) => {
    const path = values.map((value, i) => (value === undefined ? "" : `${values[i - 1] === undefined ? "M" : "L"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`)).join("");
    const dots = values.map((value, i) => (value !== undefined && values[i - 1] === undefined && values[i + 1] === undefined
      ? v("circle", { class: `fill ${kind}`, cx: x(i).toFixed(1), cy: y(value).toFixed(1), r: 1.5 }) : ""));
    return [v("path", { class: `trend ${kind}`, d: path }), ...dots];
  });
  return v("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, v("title", {}, label),
    v("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }), ...parts);
}
