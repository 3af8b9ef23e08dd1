package vllmsim

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/template"
)

func image(bytes string) object {
	return object{"type": "image_url", "image_url": object{"url": "data:image/png;base64," + bytes}}
}

func parts(list ...object) object {
	all := make([]any, len(list))
	for i, part := range list {
		all[i] = part
	}
	return object{"role": "user", "content": all}
}

func textPart(text string) object { return object{"type": "text", "text": text} }

// spelled is text that has the ids of one of the media.
var spelled = textPart(strings.Repeat(template.ImageText, template.MediaTokens))

func TestMedia_EqualIDsForEveryImageAndForTextThatSpellsThem(t *testing.T) {
	i := startInstance(t, nil)
	var first []int32
	said := map[string]bool{}
	media := []object{
		image("AAAA"), image("BBBB"), {"type": "input_audio", "input_audio": object{"data": "AAAA", "format": "wav"}},
		{"type": "video_url", "video_url": object{"url": "data:video/mp4;base64,AAAA"}}, {"type": "file", "file": object{"file_data": "AAAA"}}, spelled,
	}
	for n, part := range media {
		ask := object{"model": "sim", "messages": []any{parts(textPart("What is"), part, textPart("here?"))}}
		got := chat(t, i, with(ask, object{"return_token_ids": true}))
		prompt := ids(got.body["prompt_token_ids"])
		if first == nil {
			first = prompt
		}
		if !slices.Equal(prompt, first) || !slices.Equal(ids(post(t, i, "/tokenize", ask).body["tokens"]), first) {
			t.Errorf("part %d: prompt ids %v, of the first %v, of /tokenize %v", n, prompt, first, post(t, i, "/tokenize", ask).body["tokens"])
		}
		said[got.text()] = true
	}
	run := 0
	for _, id := range first {
		if id == bpe.Image {
			run++
		}
	}
	if run != template.MediaTokens {
		t.Errorf("%d placeholder ids, want %d", run, template.MediaTokens)
	}
	if len(said) != len(media) {
		t.Errorf("%d different answers to %d different prompts of equal ids", len(said), len(media))
	}
	// The prefix cache tells them apart, too.
	assertClean(t, i)
}

func TestMedia_TheSameImageIsReusedAndAnotherIsCorrupt(t *testing.T) {
	question := textPart(longText)
	for name, c := range map[string]struct {
		then    object
		corrupt int
	}{
		"the same image":                {image("AAAA"), 0},
		"another image of that size":    {image("BBBB"), 1},
		"text that spells the ids":      {spelled, 1},
		"the same, described otherwise": {object{"image_url": object{"url": "data:image/png;base64,AAAA"}, "type": "image_url"}, 0},
	} {
		p, d := startPair(t, nil)
		lone := startInstance(t, nil)
		_, reply := turn(t, p, d, []any{parts(image("AAAA"), question)}, nil, nil)
		next := []any{parts(c.then, question), assistant(reply.text()), user("And then? " + longText)}
		// Prefill reads the KV of the first image by position, whatever the request says.
		prefill := prefillWith(t, p, next, reply.params(), "s")
		prefill.answers(t, http.StatusOK)
		expect(t, p, counts{"Loads": 1, "CorruptReads": c.corrupt})
		got := chat(t, d, object{"model": "sim", "messages": next, "kv_transfer_params": prefill.params(), "cache_salt": "s"})
		right := chat(t, lone, object{"model": "sim", "messages": next})
		if (got.text() == right.text()) != (c.corrupt == 0) {
			t.Errorf("%s: says %q, alone %q", name, got.text(), right.text())
		}
	}
}
