package convcache_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"carryover/convcache"
	"carryover/sse/rawjson/rawjsontest"
)

// FuzzHistory checks by what must not change a digest and what must: messages spelled otherwise have
// the same digest, and a change of any value, role or order, of the scope, or of a reply's echo, has
// another.
func FuzzHistory(f *testing.F) {
	f.Add([]byte(`[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"},{"role":"user","content":[{"type":"text","text":"\ud834\udd1e\/"}]}]`),
		[]byte(`[{"type":"function","function":{"name":"f","parameters":{"a":1.0,"b":null}}}]`), "reply", uint64(1))
	text, _ := long(600)
	f.Add([]byte(`[{"role":"user","content":"`+text+`"}]`), []byte(`[{"description":"`+text+`"}]`), strings.Repeat("reply ", 200), uint64(2))
	f.Fuzz(func(t *testing.T, messages, tools []byte, reply string, seed uint64) {
		members := []convcache.Member{{Name: "tools", Value: tools}}
		if _, err := chatHistory(historyKey(t), members, messages); err == nil {
			checkHistory(t, messages, tools, reply, seed)
		}
	})
}

// TestChatHistory_RandomConversations makes the checks of FuzzHistory on conversations that are JSON by
// construction, so that none of them may be refused.
func TestChatHistory_RandomConversations(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		messages := &rawjsontest.Node{Kind: '['}
		for range rng.IntN(6) {
			messages.Kids = append(messages.Kids, randomMessage(rng))
		}
		checkHistory(t, []byte(respell(rng, messages, messageOrder)), []byte(respell(rng, randomTree(rng, 4), inOrder)), "reply", seed)
	}
}

// checkHistory checks readable messages and tools against everything that must and must not change
// their digest.
func checkHistory(t *testing.T, messages, tools []byte, reply string, seed uint64) {
	t.Helper()
	members := []convcache.Member{{Name: "tools", Value: tools}}
	h := mustChat(t, members, string(messages))
	if !json.Valid(messages) || !utf8.Valid(messages) || !json.Valid(tools) || !utf8.Valid(tools) {
		t.Fatalf("accepted what is not JSON: %q, %q", messages, tools)
	}
	tree, err := rawjsontest.Tree(messages)
	if err != nil {
		t.Fatalf("accepted what encoding/json refuses: %v: %q", err, messages)
	}
	toolTree, err := rawjsontest.Tree(tools)
	if err != nil {
		t.Fatalf("accepted what encoding/json refuses: %v: %q", err, tools)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	want, _ := h.After(convcache.Reply{})

	respelled := respell(rng, tree, messageOrder)
	scopeAgain := []convcache.Member{{Name: "tools", Value: []byte(respell(rng, toolTree, inOrder))}}
	if digest(t, scopeAgain, respelled) != want {
		t.Fatalf("another digest for another spelling: %q and %q", messages, respelled)
	}
	checkEcho(t, h, members, tree, reply)
	checkChanged(t, rng, members, tree, want)

	if what := changeValue(rng, toolTree); what != "" {
		changed := []convcache.Member{{Name: "tools", Value: []byte(respell(rng, toolTree, inOrder))}}
		if got, err := chatHistory(historyKey(t), changed, []byte(respelled)); err == nil {
			if d, _ := got.After(convcache.Reply{}); d == want {
				t.Fatalf("same digest after %s in the tools: %q and %q", what, tools, changed[0].Value)
			}
		}
	}
}

func inOrder([]string) bool { return false }

// messageOrder says where the order of members is spelling: in the message, in what its content
// holds, in a tool call and its function.
func messageOrder(path []string) bool {
	switch {
	case len(path) == 1, len(path) > 1 && path[1] == "content":
		return true
	case len(path) > 1 && path[1] == "tool_calls":
		calls := slices.DeleteFunc(slices.Clone(path[2:]), func(step string) bool { return step == "[]" })
		inFunction := len(calls) == 1 && calls[0] == "function"
		return len(calls) == 0 || inFunction && !slices.Contains(path[slices.Index(path, "function"):], "[]")
	}
	return false
}

// checkEcho checks that a faithful echo of the reply extends the turn, and one with a byte more does
// not.
func checkEcho(t *testing.T, h convcache.History, members []convcache.Member, tree *rawjsontest.Node, reply string) {
	t.Helper()
	if !utf8.ValidString(reply) {
		return
	}
	b := branch(h, convcache.Reply{Content: reply})
	for suffix, want := range map[string]bool{"": true, ".": false} {
		echo := &rawjsontest.Node{
			Kind: '{', Keys: []string{"role", "refusal", "content"},
			Kids: []*rawjsontest.Node{{Kind: '"', Text: "assistant"}, {Kind: 'n'}, {Kind: '"', Text: reply + suffix}},
		}
		question := &rawjsontest.Node{Kind: '{', Keys: []string{"role"}, Kids: []*rawjsontest.Node{{Kind: '"', Text: "user"}}}
		next := &rawjsontest.Node{Kind: '[', Kids: append(slices.Clone(tree.Kids), echo, question)}
		text := respell(rand.New(rand.NewPCG(1, 1)), next, messageOrder)
		if got := mustChat(t, members, text).Extends(b); got != want {
			t.Fatalf("extends: got %v, want %v for the reply %q and the request %q", got, want, reply, text)
		}
	}
}

// checkChanged changes something of the messages and wants another digest.
func checkChanged(t *testing.T, rng *rand.Rand, members []convcache.Member, tree *rawjsontest.Node, want convcache.Digest) {
	t.Helper()
	var what string
	if i := rng.IntN(len(tree.Kids) + 1); i+1 < len(tree.Kids) && rng.IntN(3) == 0 {
		one := digest(t, nil, `[`+respell(rng, tree.Kids[i], inOrder)+`]`)
		two := digest(t, nil, `[`+respell(rng, tree.Kids[i+1], inOrder)+`]`)
		if one == two {
			return
		}
		tree.Kids[i], tree.Kids[i+1] = tree.Kids[i+1], tree.Kids[i]
		what = "exchanging two messages"
	} else if i < len(tree.Kids) && rng.IntN(3) == 0 {
		tree.Kids = slices.Delete(tree.Kids, i, i+1)
		what = "removing a message"
	} else if what = changeValue(rng, tree); what == "" {
		return
	}
	text := respell(rng, tree, messageOrder)
	changed, err := chatHistory(historyKey(t), members, []byte(text))
	if err != nil {
		return // the role went, or a name came twice
	}
	if got, _ := changed.After(convcache.Reply{}); got == want {
		t.Fatalf("same digest after %s: %q", what, text)
	}
}

// changeValue changes one value of the tree and says how, or nothing where the change might not
// count: nulls and the index of a tool call are folded.
func changeValue(rng *rand.Rand, tree *rawjsontest.Node) string {
	n, path := pick(rng, tree, nil)
	if len(path) > 0 && path[len(path)-1] == "index" {
		return ""
	}
	switch n.Kind {
	case '"':
		n.Text += "x"
		return "a longer string"
	case '#':
		n.Text += "1"
		if !json.Valid([]byte(n.Text)) { // a lone 0
			n.Text = "7"
		}
		return "another number"
	case 't':
		n.Kind = 'f'
		return "false for true"
	case 'f':
		n.Kind = 'n'
		return "null for false"
	case '[':
		n.Kids = append(n.Kids, &rawjsontest.Node{Kind: 't'})
		return "a longer array"
	case '{':
		if n.Member("new") != nil {
			return ""
		}
		n.Keys = append(n.Keys, "new")
		n.Kids = append(n.Kids, &rawjsontest.Node{Kind: 't'})
		return "another member"
	}
	n.Kind, n.Text = '"', "null"
	return "a string for null"
}
