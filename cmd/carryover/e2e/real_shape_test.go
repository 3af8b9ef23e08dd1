//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
)

// answerShapes are the shapes that answers to one kind of request have.
type answerShapes map[string]map[string]bool

// answerShapesOf sorts exchanges by kind. Only those that carry JSON or events have a shape.
func answerShapesOf(all ...[]exchange) answerShapes {
	s := answerShapes{}
	for _, x := range slices.Concat(all...) {
		if strings.HasPrefix(x.contentType, "text/plain") || len(x.answer) == 0 {
			continue
		}
		kind := kindOf(x)
		if s[kind] == nil {
			s[kind] = map[string]bool{}
		}
		s[kind][shapeOf(x)] = true
	}
	return s
}

// release is part of the kind of a prefill leg that brings a release.
const release = " release"

// kindOf names what of a request decides how its answer looks.
func kindOf(x exchange) string {
	kind := fmt.Sprintf("%s %s %s", x.role, x.method, x.path)
	body := gjson.ParseBytes(x.request)
	for _, member := range []string{"stream", "stream_options.include_usage", "return_token_ids"} {
		if body.Get(member).Bool() {
			kind += " " + member
		}
	}
	if params := body.Get("kv_transfer_params"); params.IsObject() {
		held := params.Get("remote_block_ids").IsArray()
		switch {
		case x.role == config.RoleDecode:
			kind += " hand-over"
		case held && params.Get("remote_num_tokens").Int() == 0:
			kind += release
		case held:
			kind += " ticket"
		}
		if params.Get("prompt_token_ids").IsArray() {
			kind += " prompt_token_ids"
		}
	}
	return fmt.Sprintf("%s -> %d", kind, x.status)
}

// shapeOf writes an answer with its keys in order and its nulls, and with what may differ taken out. Equal events in a
// row count once, because there are as many as tokens.
func shapeOf(x exchange) string {
	if !strings.HasPrefix(x.contentType, "text/event-stream") {
		return x.contentType + " " + shape(x.answer)
	}
	var events []string
	for event := range bytes.SplitSeq(x.answer, []byte("\n\n")) {
		if len(event) == 0 {
			continue
		}
		seen := string(event)
		if data, ok := bytes.CutPrefix(event, []byte("data: ")); ok && json.Valid(data) {
			seen = shape(data)
		}
		if len(events) == 0 || events[len(events)-1] != seen {
			events = append(events, seen)
		}
	}
	return x.contentType + "\n      " + strings.Join(events, "\n      ")
}

func shape(raw []byte) string { return shapeOfValue(gjson.ParseBytes(raw)) }

func shapeOfValue(v gjson.Result) string {
	switch {
	case v.IsObject():
		var members []string
		v.ForEach(func(key, value gjson.Result) bool {
			members = append(members, key.String()+":"+shapeOfValue(value))
			return true
		})
		return "{" + strings.Join(members, ",") + "}"
	case v.IsArray():
		items := map[string]bool{}
		v.ForEach(func(_, item gjson.Result) bool {
			items[shapeOfValue(item)] = true
			return true
		})
		return "[" + strings.Join(slices.Sorted(maps.Keys(items)), "|") + "]"
	}
	return map[gjson.Type]string{gjson.Null: "null", gjson.True: "bool", gjson.False: "bool", gjson.Number: "number", gjson.String: "string"}[v.Type]
}

// differences lists every kind that only one side has, and every shape of a kind that both have but only one side shows.
// Releases that only one side has are no difference: which leg brings one, a turn's or one of the program's own, is a
// matter of time, and the simulator is some hundred times as fast.
func differences(engine, simulator answerShapes) []string {
	var list []string
	kinds := maps.Clone(engine)
	maps.Copy(kinds, simulator)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		switch {
		case strings.Contains(kind, release) && (engine[kind] == nil || simulator[kind] == nil):
		case engine[kind] == nil:
			list = append(list, kind+": the simulator only")
		case simulator[kind] == nil:
			list = append(list, kind+": the engine only")
		default:
			list = append(list, unlike(kind, only(engine[kind], simulator[kind]), only(simulator[kind], engine[kind]))...)
		}
	}
	return list
}

// only returns the shapes that one side has and the other does not.
func only(has, other map[string]bool) []string {
	var list []string
	for _, s := range slices.Sorted(maps.Keys(has)) {
		if !other[s] {
			list = append(list, s)
		}
	}
	return list
}

// unlike describes the shapes of a kind that only one side has. Where each has one, what both begin and end with is left
// out.
func unlike(kind string, engine, simulator []string) []string {
	if len(engine) == 1 && len(simulator) == 1 {
		a, b := engine[0], simulator[0]
		from := 0
		for from < min(len(a), len(b)) && a[from] == b[from] {
			from++
		}
		end := 0
		for end < min(len(a), len(b))-from && a[len(a)-1-end] == b[len(b)-1-end] {
			end++
		}
		before := a[max(0, from-40):from]
		return []string{fmt.Sprintf("%s:\n    after ...%s the engine has %q, the simulator %q", kind, before, a[from:len(a)-end], b[from:len(b)-end])}
	}
	var list []string
	for _, s := range engine {
		list = append(list, fmt.Sprintf("%s: the engine only:\n    %s", kind, s))
	}
	for _, s := range simulator {
		list = append(list, fmt.Sprintf("%s: the simulator only:\n    %s", kind, s))
	}
	return list
}
