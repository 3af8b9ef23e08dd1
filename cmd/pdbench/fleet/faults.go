package fleet

import (
	"bytes"
	"encoding/json"
	"io"
)

// mostShown is how many failed hand-backs a row shows.
const mostShown = 5

// ShowFaults shows the warnings in a proxy's log, hand-backs that did not succeed, and lines that are no log entry.
func ShowFaults(log []byte, out io.Writer) {
	wrong := 0
	for text := range bytes.Lines(log) {
		var line struct {
			Level   string `json:"level"`
			Message string `json:"msg"`
			Outcome string `json:"outcome"`
		}
		parsed := json.Unmarshal(text, &line) == nil
		handBack := line.Message == "hand-back" && line.Outcome != "done"
		if handBack {
			wrong++
		}
		switch {
		case parsed && line.Message == "turn": // the client reports failed turns
		case !parsed, handBack && wrong <= mostShown, !handBack && line.Level != "INFO":
			_, _ = out.Write(text)
		}
	}
}
