// How turns ended over time, from which the page computes their recent rates.

// kindOf returns the kind that a turn counts as: "hit", "off", or "prefix" or "miss" with its reason.
function kindOf(record) {
  return record.outcome === "miss" || record.outcome === "prefix" ? `${record.outcome} ${record.reason}` : record.outcome;
}

// followUps names the number of follow-up turns among counts. It is no kind: these turns have kinds of their own.
export const followUps = "follow-ups";

// countsOf are a snapshot's totals by kind.
export function countsOf(totals) {
  const counts = new Map([["hit", totals.hits], ["off", totals.off]]);
  for (const [outcome, reasons] of [["prefix", totals.prefixes ?? {}], ["miss", totals.misses]]) {
    for (const [reason, n] of Object.entries(reasons)) {
      counts.set(`${outcome} ${reason}`, n);
    }
  }
  counts.set(followUps, totals.follow_ups ?? 0);
  return counts;
}

// turnsOf is the number of turns in counts.
export function turnsOf(counts) {
  return [...counts].reduce((sum, [kind, n]) => sum + (kind === followUps ? 0 : n), 0);
}

// History has the totals at moments of the past. Records tell the time before the page was opened.
export class History {
  #points = []; // oldest first

  constructor(length) {
    this.length = length; // ms that are of interest
  }

  add(snapshot) {
    const now = Date.parse(snapshot.now);
    if (this.#points.length === 0) {
      this.#points = before(snapshot);
    }
    this.#points.push({ at: now, counts: countsOf(snapshot.totals) });
    const from = this.#points.findLastIndex((point) => point.at <= now - this.length);
    this.#points.splice(0, Math.max(0, from));
  }

  clear() {
    this.#points = [];
  }

  // lately returns the counts of the time that is of interest, and how long it is: less where less is known.
  lately() {
    const first = this.#points[0];
    const last = this.#points.at(-1);
    const counts = new Map();
    for (const [kind, n] of last.counts) {
      counts.set(kind, n - (first.counts.get(kind) ?? 0));
    }
    return { counts, over: Math.min(last.at - first.at, this.length) };
  }
}

// before takes the turns of a first snapshot's records off its totals, one by one.
function before(snapshot) {
  const counts = countsOf(snapshot.totals);
  const points = [];
  for (const record of [...snapshot.records].reverse()) {
    const kind = kindOf(record);
    counts.set(kind, (counts.get(kind) ?? 0) - 1);
    counts.set(followUps, counts.get(followUps) - (record.follow_up ? 1 : 0));
    // Just before its end, so that the turn is among those of any time that includes it.
    points.unshift({ at: Date.parse(record.began) + record.duration_ms - 1, counts: new Map(counts) });
  }
  if (snapshot.records.length === snapshot.totals.turns) {
    points.unshift({ at: Date.parse(snapshot.totals.since), counts: new Map() }); // nothing is unknown
  }
  return points;
}
