package load

import (
	"bytes"
	"testing"

	"carryover/cmd/pdbench/engines"
)

// FuzzAnswer takes any bytes for a stream: what is found wrong with it does not depend on how they arrive.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		take := func(size int) (a answer, chunks int, err error) {
			a.begin(expected{says: engines.AnswerTo(7, 1), chunks: 3, hides: true})
			for rest := text; len(rest) > 0 && err == nil; {
				part := rest[:min(size, len(rest))]
				var got int
				got, err = a.take(bytes.Clone(part))
				chunks += got
				rest = rest[len(part):]
			}
			return a, chunks, err
		}
		n := int(size) + 1
		whole, chunks, err := take(len(text) + 1)
		split, splitChunks, splitErr := take(n)
		if (err == nil) != (splitErr == nil) || err == nil && (chunks != splitChunks || whole.done != split.done || !bytes.Equal(whole.text, split.text)) {
			t.Fatalf("at once %d, %v, %v; by %d: %d, %v, %v", chunks, whole.done, err, n, splitChunks, split.done, splitErr)
		}
	})
}
