//go:build e2e

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// shapes are the shapes that answers to one kind of request have.
type shapes map[string]map[string]bool

// shapesOf sorts exchanges by kind. Only those that carry JSON or events have a shape.
func shapesOf(all ...[]exchange) shapes {
	s := shapes{}
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
		case x.role == roleDecode:
			kind += " hand-over"
		case held && params.Get("remote_num_tokens").Int() == 0:
			kind += " release"
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
func differences(engine, simulator shapes) []string {
	var list []string
	kinds := maps.Clone(engine)
	maps.Copy(kinds, simulator)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		switch {
		case engine[kind] == nil:
			list = append(list, kind+": the simulator only")
		case simulator[kind] == nil:
			list = append(list, kind+": the engine only")
		default:
			list = append(list, missing(kind, "engine", engine[kind], simulator[kind])...)
			list = append(list, missing(kind, "simulator", simulator[kind], engine[kind])...)
		}
	}
	return list
}

func missing(kind, side string, has, other map[string]bool) []string {
	var list []string
	for _, s := range slices.Sorted(maps.Keys(has)) {
		if !other[s] {
			list = append(list, fmt.Sprintf("%s: the %s only:\n    %s", kind, side, s))
		}
	}
	return list
}
