// How numbers and times are written.

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// none stands where there is nothing to say.
export const none = "–";

export function count(n) {
  return n === undefined || n === null ? none : whole.format(Math.round(n));
}

export function percent(share) {
  return Number.isFinite(share) ? `${(share * 100).toFixed(1)} %` : none;
}

// milliseconds writes a time that is given in them.
export function milliseconds(ms) {
  if (ms === undefined || ms === null) {
    return none;
  }
  if (ms < 10) {
    return `${ms.toFixed(1)} ms`;
  }
  return ms < 10_000 ? `${whole.format(Math.round(ms))} ms` : `${(ms / 1000).toFixed(1)} s`;
}

// span writes a time of seconds to days in its two largest units.
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const units = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => seconds >= size);
  if (first < 0) {
    return "0 s";
  }
  const [size, name] = units[first];
  const [smaller, its] = units[first + 1] ?? [0, ""];
  const rest = smaller === 0 ? 0 : Math.floor((seconds % size) / smaller);
  return `${Math.floor(seconds / size)} ${name}${rest > 0 ? ` ${rest} ${its}` : ""}`;
}

const dated = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

// date writes the day and the time of day, here.
export function date(text) {
  return dated.format(new Date(text));
}

// time writes the time of day, here.
export function time(text) {
  return clock.format(new Date(text));
}
