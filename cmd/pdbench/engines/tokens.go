package engines

import (
	"encoding/binary"
	"strconv"
)

// The token model. A message is the id of its role, one id for each four bytes of its text, and an end id. A prompt for an answer ends with
// the id of the assistant's role. An answer is one id for each four bytes of its text, and the end id. The next turn's ids are therefore the
// ids of this turn's prompt and answer, and what was added. It stands for a template that is append-only, and for text that is tokenised as
// it was sampled.
const (
	pieceBytes = 4
	endID      = 0
	firstText  = 8       // lower ids are roles
	textIDs    = 1 << 17 // as many as in current vocabularies
)

func roleID(role []byte) uint32 {
	switch string(role) {
	case "system", "developer":
		return 1
	case "user":
		return 2
	case "assistant":
		return 3
	}
	return 4
}

// pieceID returns the id of four bytes of text, or of fewer at its end.
func pieceID(piece []byte) uint32 {
	var four [pieceBytes]byte
	copy(four[:], piece)
	return firstText + uint32(uint64(binary.LittleEndian.Uint32(four[:]))*0x9E3779B97F4A7C15>>47)
}

func pieces(text []byte) int { return (len(text) + pieceBytes - 1) / pieceBytes }

// numerals are ids as JSON text, each with a comma behind it. The last of the eight bytes is the length. A prompt of 8,000 tokens takes 40 µs
// with them, and 200 µs with strconv.
type numerals [firstText + textIDs][8]byte

func newNumerals() *numerals {
	var n numerals
	for id := range n {
		text := append(strconv.AppendInt(nil, int64(id), 10), ',')
		n[id][7] = byte(copy(n[id][:7], text))
	}
	return &n
}

func (n *numerals) add(list []byte, id uint32) []byte {
	entry := &n[id]
	at := len(list)
	return append(list, entry[:]...)[:at+int(entry[7])]
}

func (n *numerals) text(list, text []byte) []byte {
	for ; len(text) >= pieceBytes; text = text[pieceBytes:] {
		list = n.add(list, pieceID(text[:pieceBytes]))
	}
	if len(text) > 0 {
		list = n.add(list, pieceID(text))
	}
	return list
}

func (n *numerals) messages(list []byte, messages []message) []byte {
	for i := range messages {
		list = n.add(list, roleID(messages[i].role))
		list = n.text(list, messages[i].text)
		list = n.add(list, endID)
	}
	return list
}

// generation ends the list of a prompt with the assistant's role.
func (n *numerals) generation(list []byte) []byte {
	return closed(n.add(list, roleID([]byte("assistant"))))
}

// closed replaces the last comma of a list by the closing bracket.
func closed(list []byte) []byte {
	if list[len(list)-1] == ',' {
		list = list[:len(list)-1]
	}
	return append(list, ']')
}

// AnswerText tells what an engine answers, so that the load generator knows it too. Each token's text is a function of the conversation, of
// the number of messages in the prompt, and of the token's place.
type AnswerText uint64

// AnswerTo returns the answer to a prompt with this number of messages.
func AnswerTo(conversation uint64, messages int) AnswerText {
	return AnswerText(scatter(conversation<<12 ^ uint64(messages)))
}

// Add appends the text of one token: four letters, so that no answer begins or ends with white space, which chat templates may trim.
func (a AnswerText) Add(text []byte, place int) []byte {
	x := scatter(uint64(a) + uint64(place))
	return append(text, 'a'+byte(x&15), 'a'+byte(x>>4&15), 'a'+byte(x>>8&15), 'a'+byte(x>>12&15))
}

// Whole appends the text of an answer of n tokens.
func (a AnswerText) Whole(text []byte, n int) []byte {
	for i := range n {
		text = a.Add(text, i)
	}
	return text
}

// scatter is the mixing step of SplitMix64.
func scatter(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
