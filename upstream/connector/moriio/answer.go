package moriio

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

// check returns an error if decode must not use, or will not get, the KV of a prefill engine that has answered. An engine that keeps the
// KV answers with kv_transfer_params; an engine that has thrown it away does not.
func (a *attempt) check(answer upstream.PrefillAnswer) error {
	if err := connector.CheckIDs(answer, a.PromptIDs); err != nil {
		return err
	}
	if answer.Params == nil {
		return connector.ErrNotCapped
	}
	return nil
}

// answered makes decode's leg from prefill's answer, in READ mode.
func (a *attempt) answered(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
	if err := a.check(answer); err != nil {
		return nil, err
	}
	params, err := a.forward(answer.Params)
	if err != nil {
		return nil, err
	}
	return a.handover(params), nil
}

// forward makes decode's kv_transfer_params from prefill's. Members that engines add of their own stay as they are. The error names the
// wrong member without its value.
func (a *attempt) forward(answered []byte) ([]byte, error) {
	text, err := connector.ParseParams(bytes.Clone(answered))
	if err != nil {
		return nil, err
	}
	for name, right := range map[string]func(raw []byte) bool{
		"do_remote_prefill": func(raw []byte) bool { return string(raw) == "true" },
		"remote_engine_id":  isText, "remote_block_ids": isBlocks,
		"transfer_id": func(raw []byte) bool { id, _ := rawjson.Text(raw); return raw == nil || id == a.transfer },
		"remote_host": func(raw []byte) bool { return rawjson.IsNull(raw) || isText(raw) },
		"remote_port": isPort, "remote_handshake_port": isPort, "remote_notify_port": isPort,
		"remote_dp_rank": isSmall, "remote_dp_rank_override": isSmall, "remote_dp_size": isSmall, "remote_dp_size_local": isSmall,
		"remote_tp_size": isSmall, "tp_size": isSmall,
	} {
		if !right(text.Get(name)) {
			return nil, fmt.Errorf("kv_transfer_params.%s: wrong value or missing", name)
		}
	}
	changes := make(rawjson.Edits, 0, 16)
	changes.Set("do_remote_decode", []byte("false"))
	changes.Set("do_remote_prefill", []byte("true"))
	changes.Set("transfer_id", rawjson.Quote(a.transfer)) // engines before 2026-03-15 do not repeat it
	changes.Remove(connector.IDsMember)
	if a.Request.API() == body.Chat {
		changes.Set(connector.IDsMember, a.ids)
	}
	from, _ := addressOf(a.Prefill)
	known := a.Prefill.Announced
	missing := func(name string, value []byte) {
		if rawjson.IsNull(text.Get(name)) {
			changes.Set(name, value)
		}
	}
	missing("remote_host", rawjson.Quote(from.host))
	missing("remote_port", strconv.AppendInt(nil, int64(from.handshake), 10))
	missing("remote_handshake_port", strconv.AppendInt(nil, int64(from.handshake), 10))
	missing("remote_notify_port", strconv.AppendInt(nil, int64(from.notify), 10))
	missing("remote_dp_size", strconv.AppendInt(nil, int64(max(known.DPSize, 1)), 10))
	missing("remote_tp_size", strconv.AppendInt(nil, int64(max(known.TPSize, 1)), 10))
	if a.rank >= 0 {
		missing("remote_dp_rank", strconv.AppendInt(nil, int64(a.rank), 10))
	}
	return text.Rewrite(changes), nil
}

// isText accepts a text that can be a host or the name of an engine.
func isText(raw []byte) bool {
	text, ok := rawjson.Text(raw)
	return ok && text != "" && len(text) <= 256 && !strings.ContainsFunc(text, func(r rune) bool { return r < '!' || r > '~' })
}

// isPort accepts null or no value, and a port as a number or as a text: the defaults of an engine are texts (MoRIIOConstants).
func isPort(raw []byte) bool {
	if rawjson.IsNull(raw) {
		return true
	}
	if text, ok := rawjson.Text(raw); ok {
		raw = []byte(text)
	}
	n, ok := rawjson.Integer(raw)
	return ok && n >= 1 && n <= 65535
}

// isSmall accepts a size or a rank, and null or no value.
func isSmall(raw []byte) bool {
	n, ok := rawjson.Integer(raw)
	return rawjson.IsNull(raw) || ok && n >= 0 && n <= 1024
}

// isBlocks accepts a list with at least one id: a flat list, or lists of ids for models with several KV cache groups. Without blocks
// decode would answer from memory that was never written.
func isBlocks(raw []byte) bool {
	ids, ok := rawjson.ParseIDs(raw)
	if ok {
		return len(ids) > 0
	}
	s := rawjson.Scanner{Data: raw}
	some := false
	err := s.Elements(func() error {
		group, ok := s.IDsInto(nil)
		if !ok {
			return s.Fault("not a list of ids")
		}
		some = some || len(group) > 0
		return nil
	})
	return err == nil && some
}
