// The bearer token of the admin listener. It is kept by this tab alone, and ends with it.

const kept = "carryover.token";

// ask sends a request for data, with the token if there is one.
export function ask(path, options = {}) {
  const token = sessionStorage.getItem(kept);
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  return fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
}

export function keep(token) {
  sessionStorage.setItem(kept, token);
}

// forget forgets it, and reports whether there was one.
export function forget() {
  const was = sessionStorage.getItem(kept) !== null;
  sessionStorage.removeItem(kept);
  return was;
}
