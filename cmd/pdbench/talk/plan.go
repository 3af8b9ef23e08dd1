package talk

import (
	"math/rand/v2"
	"strings"
	"time"
)

// Conversation is what one client says, and when.
type Conversation struct {
	ID     string // "" for a client that names none
	System string
	Begins time.Duration // engine time since the start
	Turns  []Question
}

// Question is a message of the user.
type Question struct {
	Text   string
	Answer string        // the answer that it orders, "" for any
	Think  time.Duration // engine time after the previous answer, 0 for the first
}

// Prose returns a sentence with this number of words.
func Prose(draw *rand.Rand, words int) string {
	known := strings.Fields(vocabulary)
	list := make([]string, words)
	for i := range list {
		list[i] = known[draw.IntN(len(known))]
	}
	return strings.Join(list, " ") + "."
}

const vocabulary = "river letter harbour morning reader answer bridge lamp evening ship wind stone paper garden window silver branch " +
	"winter market candle signal engine ticket history station copper violin meadow thunder pocket ladder mirror orange quiet"
