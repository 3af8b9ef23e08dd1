package upstream

import (
	"bytes"

	"carryover/sse/rawjson"
)

// maxErrorMessage bounds what is kept of an engine's message.
const maxErrorMessage = 2 << 10

// Fault is what an engine's error body said; "" is what it did not say.
type Fault struct {
	// Message has at most 2 KiB; it is for logs, and for a client only if the
	// client can mend the fault.
	Message string
	Type    string // vLLM's name of the kind of error, e.g. "NotFoundError"
	Param   string // the member of the request at fault
}

// ReadFault reads vLLM's error body, {"error":{"message","type","param","code"}},
// the older flat form, or a string, tolerantly: what can't be read is the zero Fault.
func ReadFault(body []byte) (f Fault) {
	if !rawjson.Valid(body) {
		return Fault{}
	}
	detail := rawjson.Get(body, "error")
	if detail == nil {
		detail = bytes.TrimSpace(body)
	}
	if rawjson.Kind(detail) == '"' {
		f.Message = rawjson.GetText(detail)
	} else {
		f.Message = rawjson.GetText(detail, "message")
		f.Type = rawjson.GetText(detail, "type")
		f.Param = rawjson.GetText(detail, "param")
	}
	if len(f.Message) > maxErrorMessage {
		f.Message = f.Message[:maxErrorMessage]
	}
	return f
}
