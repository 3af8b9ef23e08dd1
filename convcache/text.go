package convcache

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// TextHistory digests a text completion request whose prompt is a string; prompt is its decoded
// value. Its errors are those of ChatHistory.
func (k HistoryKey) TextHistory(scope []Member, prompt string) (History, error) {
	c := borrowCanonical(k)
	defer c.giveBack()
	d, err := c.scopeDigest(routeText, scope)
	if err != nil {
		return History{}, err
	}
	if !utf8.ValidString(prompt) {
		return History{}, fmt.Errorf("digest prompt: %w", errNotUTF8)
	}
	return History{key: k, route: routeText, last: d, prompt: prompt}, nil
}

// extendsText compares the digest of the covered bytes, and then checks the border: a byte-pair merge across it would
// make other tokens of the same text. The border is safe if nothing was appended, or if white space follows a letter
// or digit. The pre-tokenisers of GPT-2, Llama 3 and Qwen have no pattern in which white space follows \p{L} or \p{N},
// and SentencePiece begins a piece at each space.
func (h History) extendsText(b Branch) bool {
	if b.History.Covers > len(h.prompt) || h.last.next([]byte(h.prompt[:b.History.Covers])) != b.History.Digest {
		return false
	}
	appended := h.prompt[b.History.Covers:]
	if appended == "" {
		return true
	}
	before, _ := utf8.DecodeLastRuneInString(h.prompt[:b.History.Covers])
	after, _ := utf8.DecodeRuneInString(appended)
	return (unicode.IsLetter(before) || unicode.IsDigit(before)) && unicode.IsSpace(after)
}
