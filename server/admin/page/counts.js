// How turns ended over time, from which the page computes their recent rates.

// kindOf returns the kind that a turn counts as: its outcome, with the reason if it has one.
function kindOf(record) {
  return record.reason ? `${record.outcome} ${record.reason}` : record.outcome;
}

// Names among counts that are no kinds: the number of follow-up turns, of which hits, the tokens of their prompts, and of which saved.
export const [followUps, hits, promptTokens, savedTokens] = ["follow-ups", "hits", "prompt tokens", "saved tokens"];
const sums = new Set([followUps, hits, promptTokens, savedTokens]);

// kindsOf are the kinds in counts.
export function kindsOf(counts) {
  return [...counts.keys()].filter((name) => !sums.has(name));
}

// countsOf are a snapshot's totals by kind.
export function countsOf(totals) {
  const counts = new Map([["hit", totals.hits], ["off", totals.off]]);
  for (const [outcome, reasons] of [["hit", totals.empty_hits ?? {}], ["prefix", totals.prefixes ?? {}], ["miss", totals.misses]]) {
    for (const [reason, n] of Object.entries(reasons)) {
      counts.set(`${outcome} ${reason}`, n);
      counts.set("hit", counts.get("hit") - (outcome === "hit" ? n : 0));
    }
  }
  return counts.set(followUps, totals.follow_ups).set(hits, totals.hits).set(promptTokens, totals.follow_up_tokens).set(savedTokens, totals.saved_tokens);
}

// turnsOf is the number of turns in counts.
export function turnsOf(counts) {
  return kindsOf(counts).reduce((sum, kind) => sum + counts.get(kind), 0);
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
    const prompt = record.follow_up ? Math.max(record.prompt_tokens ?? 0, record.tokens_confirmed ?? 0, record.tokens_offered ?? 0) : 0;
    for (const [name, n] of [
      [kindOf(record), 1], [followUps, record.follow_up ? 1 : 0], [hits, record.outcome === "hit" ? 1 : 0],
      [promptTokens, prompt], [savedTokens, record.tokens_read ?? 0],
    ]) {
      counts.set(name, (counts.get(name) ?? 0) - n);
    }
    // Just before its end, so that the turn is among those of any time that includes it.
    points.unshift({ at: Date.parse(record.began) + record.duration_ms - 1, counts: new Map(counts) });
  }
  if (snapshot.records.length === snapshot.totals.turns) {
    points.unshift({ at: Date.parse(snapshot.totals.since), counts: new Map() }); // nothing is unknown
  }
  return points;
}
