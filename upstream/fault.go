package upstream

import (
	"github.com/tidwall/gjson"

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
	detail := gjson.GetBytes(body, "error")
	if !detail.Exists() {
		detail = gjson.ParseBytes(body)
	}
	if detail.Type == gjson.String {
		f.Message = detail.String()
	} else {
		f.Message = detail.Get("message").String()
		f.Type = detail.Get("type").String()
		f.Param = detail.Get("param").String()
	}
	if len(f.Message) > maxErrorMessage {
		f.Message = f.Message[:maxErrorMessage]
	}
	return f
}
