// Package suggest finds the word that somebody has probably meant: a flag, a key, a value, a path. It imports nothing of ours.
package suggest

import (
	"slices"
	"strings"
)

// maxLength bounds the compared words, some from clients: the effort grows with its square.
const maxLength = 64

// Nearest returns the candidate that differs least from word, the first of equal ones, "" if none is near: at most one letter in three
// may be wrong, missing, one too many or swapped with its neighbour. Capital letters, "-" for "_", and the order of the parts of a name
// (timeout-idle for idle-timeout) don't count.
func Nearest(word string, candidates []string) string {
	if len(word) > maxLength {
		return ""
	}
	best, least := "", max(1, len(word)/3)+1
	plain, sorted := normal(word)
	for _, candidate := range candidates {
		if len(candidate) > maxLength || len(candidate) < 2 || len(word) < 2 {
			continue
		}
		p, s := normal(candidate)
		if d := min(distance(plain, p), distance(sorted, s)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// DidYouMean is Nearest as a question that ends a message, with a space before it, "" if nothing is near. shown writes the word, such as
// "--%s" of a flag.
func DidYouMean(word string, candidates []string, shown func(string) string) string {
	near := Nearest(word, candidates)
	if near == "" {
		return ""
	}
	return "; did you mean " + shown(near) + "?"
}

func normal(name string) (plain, sorted string) {
	plain = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	parts := strings.Split(plain, "-")
	slices.Sort(parts)
	return plain, strings.Join(parts, "-")
}

// distance counts letters to insert, remove, replace or swap with their neighbour (optimal string alignment: none is touched twice).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
