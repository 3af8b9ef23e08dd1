// The theme: the system's, or the one that was chosen here. It runs before the page is painted.

const kept = "carryover.theme";

export function chosen() {
  return localStorage.getItem(kept) ?? "system";
}

export function choose(theme) {
  localStorage.setItem(kept, theme);
  apply();
}

function apply() {
  document.documentElement.dataset.theme = chosen();
}

apply();
