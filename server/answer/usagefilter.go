package answer

import (
	"bytes"

	"carryover/sse"
	"carryover/sse/rawjson"
)

// usageFilter hides from the client that this program asked for the usage of its stream. The usage is needed because remote_num_tokens
// alone does not show that an output id was lost or came twice. With include_usage, vLLM 0.32 sends one more event after the finish. That
// event has the usage, and also the system_fingerprint that the finish would otherwise have (chat_completion/serving.py,
// completion/serving.py). So the filter holds the finish back and sends the later event in its place, with the choice of the finish and
// without the usage. The client then sees the finish that a stock engine would have sent.
type usageFilter struct{ finish []byte } // the choices of the finish that is held back

// hold reports whether an event with these choices and this finish_reason is the finish; if it is, hold keeps it back. plain says that the
// client must see no ids in it.
func (c *usageFilter) hold(data, choices, reason []byte, plain bool) bool {
	if rawjson.Kind(reason) != '"' || c.finish != nil {
		return false
	}
	if plain {
		data, _, _ = sse.NullTokenIDs(data)
		choices = rawjson.Get(data, "choices")
	}
	c.finish = bytes.Clone(choices)
	return true
}

// resume turns the event with the usage into the finish that was held back. If that can't be done, resume drops the event, and the held
// finish goes out as it came.
func (c *usageFilter) resume(ev sse.Event) sse.Verdict {
	var edits rawjson.Edits
	edits.Set("choices", c.finish)
	edits.Remove("usage")
	o, err := rawjson.ParseObject(ev.Shown())
	choices := o.Get("choices")
	if c.finish == nil || err != nil || rawjson.Kind(choices) != '[' || !rawjson.IsEmpty(choices) || !o.Has("system_fingerprint") ||
		!replaceData(ev, o.Rewrite(edits)) {
		return sse.Drop
	}
	return sse.Supersede
}

// replaceData replaces an event's data by an object on one line. JSON strings contain no line ends, so the line ends between several data
// lines can be removed.
func replaceData(ev sse.Event, object []byte) bool {
	object = bytes.ReplaceAll(object, []byte("\n"), nil)
	if ev.Supplant(object) {
		return true
	}
	from := len(ev.Data) - len(bytes.TrimLeft(ev.Data, "\n")) // empty data lines stay
	return ev.Replace(from, len(bytes.TrimRight(ev.Data, "\n")), object)
}
