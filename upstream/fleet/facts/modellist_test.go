package facts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func listOf(ids ...string) string {
	cards := make([]string, len(ids))
	for i, id := range ids {
		cards[i] = fmt.Sprintf(`{"id":%q,"object":"model"}`, id)
	}
	return `{"object":"list","data":[` + strings.Join(cards, ",") + `]}`
}

func TestParseModels(t *testing.T) {
	many := make([]string, maxListedModels+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, row := range []struct {
		name, list string
		want       string // ids, "-" if it is not a list
	}{
		{"recorded", recorded(t, "17-models.json"), "tiny"},
		{"none", `{"object":"list","data":[]}`, ""},
		{"an adapter", listOf("base", "sql-lora"), "base sql-lora"},
		{"twice", listOf("a", "b", "a"), "a b"},
		{"white space", " { \"data\" : [ { \"id\" : \"a\" } , {\"id\":\"b\"} ] } \n", "a b"},
		{"escapes", `{"data":[{"id":"\u0061\/b"}]}`, "a/b"},
		{"as many as may be", listOf(many[:maxListedModels]...), strings.Join(many[:maxListedModels], " ")},
		{"one more", listOf(many...), "-"},
		{"a long id", listOf(strings.Repeat("x", maxModelID)), strings.Repeat("x", maxModelID)},
		{"a longer id", listOf(strings.Repeat("x", maxModelID+1)), "-"},
		{"an empty id", listOf(""), "-"},
		{"no id", `{"data":[{"object":"model"}]}`, "-"},
		{"an id that is no text", `{"data":[{"id":7}]}`, "-"},
		{"half a surrogate", `{"data":[{"id":"\ud800"}]}`, "-"},
		{"a card that is none", `{"data":["a"]}`, "-"},
		{"data that is no list", `{"data":{"id":"a"}}`, "-"},
		{"no data", `{"object":"list"}`, "-"},
		{"two ids", `{"data":[{"id":"a","id":"b"}]}`, "-"},
		{"cut", listOf("a", "b")[:40], "-"},
		{"an error", `{"error":"Unauthorized"}`, "-"},
		{"empty", "", "-"},
		{"deep", `{"data":[{"id":"a","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}]}`, "-"},
	} {
		models := ParseModels([]byte(row.list))
		var ids []string
		for _, m := range models {
			ids = append(ids, m.ID)
			if !strings.Contains(row.list, string(m.Card)) {
				t.Errorf("%s: the card of %s is %s, not as the engine wrote it", row.name, m.ID, m.Card)
			}
		}
		if got := strings.Join(ids, " "); (models == nil) != (row.want == "-") || models != nil && got != row.want {
			t.Errorf("%s: got %.100q, want %.100q", row.name, got, row.want)
		}
	}
}

// FuzzParseModels holds the reader to encoding/json, which accepts more.
func FuzzParseModels(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		models := ParseModels(raw)
		if models == nil {
			return
		}
		var answer map[string]json.RawMessage // names of maps are compared exactly
		var want []map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal(raw, &answer), json.Unmarshal(answer["data"], &want)); err != nil ||
			len(models) > len(want) || len(models) > maxListedModels {
			t.Fatalf("%q: %d models, encoding/json finds %d, %v", raw, len(models), len(want), err)
		}
		seen, next := map[string]bool{}, 0
		for _, card := range want {
			var id string
			if err := json.Unmarshal(card["id"], &id); err != nil {
				t.Fatalf("%q: %v", raw, err)
			}
			if seen[id] {
				continue
			}
			seen[id] = true
			if next == len(models) || models[next].ID != id || !bytes.Contains(raw, models[next].Card) || !json.Valid(models[next].Card) {
				t.Fatalf("%q: got %+v, want %q next", raw, models, id)
			}
			next++
		}
	})
}

// An adapter has the context of the instance that serves it.
func TestContextLength(t *testing.T) {
	models := []Model{{ID: "adapter"}, {ID: "m", length: 512}, {ID: "n", length: 64}}
	for model, want := range map[string]int{"m": 512, "n": 64, "adapter": 512, "loaded when asked": 512, "": 512} {
		if got := ContextLength(models, model); got != want {
			t.Errorf("%q: %d, want %d", model, got, want)
		}
	}
	if got := ContextLength(models[:1], "adapter"); got != 0 {
		t.Errorf("%d, where no entry tells it", got)
	}
}
