// Time to the first token: hits as measured, and the same turns as they would have been without reuse, on the same scale.

import { byId, h, Table, v } from "./dom.js";
import { count, milliseconds, none, percent } from "./format.js";

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

// quantile is the bound below which a share of the turns is, by the buckets.
function quantile(counts, bounds, share) {
  let left = sum(counts) * share;
  for (let i = 0; i < counts.length; i++) {
    left -= counts[i];
    if (left <= 0) {
      return i < bounds.length ? `${bounds[i].toLocaleString("en")} ms` : "more than the last bound";
    }
  }
  return none;
}

// inWords says of a histogram what it shows.
function inWords(name, histogram, bounds) {
  const turns = sum(histogram.counts);
  if (turns === 0) {
    return `${name}: no turns`;
  }
  return `${name}: ${count(turns)} turns, ${milliseconds(histogram.sum_ms / turns)} on average, half of them within ` +
    `${quantile(histogram.counts, bounds, 0.5)}, nine of ten within ${quantile(histogram.counts, bounds, 0.9)}`;
}

const height = 54;
const width = 380;
const foot = 14;

// chart draws the buckets from..to. most is the share that a full column stands for.
function chart(words, kind, histogram, bounds, [from, to], most) {
  const all = Math.max(1, sum(histogram.counts));
  const step = width / (to - from + 1);
  const parts = [];
  for (let i = from; i <= to; i++) {
    const tall = (histogram.counts[i] / all / most) * (height - 2);
    const x = (i - from) * step;
    parts.push(v("rect", { class: `fill ${kind}`, x: x + 1, y: height - tall, width: step - 2, height: tall }));
    if (i < bounds.length && i < to) {
      parts.push(v("text", { x: x + step, y: height + foot - 3, "text-anchor": "middle" }, short(bounds[i])));
    }
  }
  return v("svg", { viewBox: `0 0 ${width} ${height + foot}`, role: "img", "aria-label": words },
    v("line", { class: "axis", x1: 0, x2: width, y1: height + 0.5, y2: height + 0.5 }), ...parts);
}

function short(ms) {
  return ms < 10_000 ? String(ms) : `${Math.round(ms / 1000)}k`;
}

// shown are the first and the last bucket with turns of either kind, with one beside them.
function shown(...all) {
  const used = all[0].counts.map((_, i) => all.some((histogram) => histogram.counts[i] > 0));
  const first = used.indexOf(true);
  return first < 0 ? [0, 6] : [Math.max(0, first - 1), Math.min(used.length - 1, Math.max(used.lastIndexOf(true) + 1, first + 5))];
}

export class TTFT {
  #drawn = "";

  constructor() {
    this.table = new Table(byId("ttft-table"), [
      { head: "Up to", title: "Upper bound of the time to the first token", class: "number", text: (row) => row.bound },
      { head: "Hits", title: "Hits as measured", class: "number", text: (row) => count(row.hits) },
      { head: "Without reuse", title: "The same turns, with the time in which prefill would have computed what it did not", class: "number", text: (row) => count(row.without) },
    ]);
  }

  show({ totals, bounds_ms: bounds }) {
    const key = JSON.stringify([totals.ttft_hits, totals.ttft_hits_without]);
    if (key === this.#drawn) {
      return;
    }
    this.#drawn = key;
    const range = shown(totals.ttft_hits, totals.ttft_hits_without);
    const shares = (histogram) => histogram.counts.map((n) => n / Math.max(1, sum(histogram.counts)));
    const most = Math.max(0.01, ...shares(totals.ttft_hits), ...shares(totals.ttft_hits_without));
    for (const [id, name, kind, histogram] of [
      ["ttft-hits", "Hits", "hit", totals.ttft_hits], ["ttft-without", "The same turns without reuse", "off", totals.ttft_hits_without],
    ]) {
      const words = inWords(name, histogram, bounds);
      byId(id).replaceChildren(h("h3", {}, words), chart(`${name}; the table below has the numbers. A full column is ${percent(most)}.`, kind, histogram, bounds, range, most));
    }
    const rows = totals.ttft_hits.counts.map((hits, i) => ({
      bound: i < bounds.length ? `${count(bounds[i])} ms` : "more", hits, without: totals.ttft_hits_without.counts[i],
    }));
    this.table.show(rows.slice(range[0], range[1] + 1), (row) => row.bound);
  }
}
