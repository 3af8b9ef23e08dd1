package fleet

import (
	"bytes"
	"encoding/json"
	"io"
)

// mostShown is how many hand-backs that went wrong are shown of a row.
const mostShown = 5

// ShowFaults shows what a proxy's log has of warnings, of hand-backs that are anything but done, and of what is no log.
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
		case parsed && line.Message == "turn": // the client knows
		case !parsed, handBack && wrong <= mostShown, !handBack && line.Level != "INFO":
			_, _ = out.Write(text)
		}
	}
}
