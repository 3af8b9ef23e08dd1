// What the reasons of turns without a hit mean, as the program says it.

const meanings = new Map();

// learn takes in what a program says of reasons.
export function learn(reasons) {
  meanings.clear();
  for (const [reason, sentence] of Object.entries(reasons)) {
    meanings.set(reason, sentence);
  }
}

// meaning returns what a reason means, undefined if that is not known.
export function meaning(reason) {
  return meanings.get(reason);
}
