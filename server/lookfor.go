package server

import "bytes"

// mayHave reports whether data has a member called name whose value begins with these bytes, white space between them
// not counted. It looks at bytes only: text may look like a member, and a name in escapes is not found.
func mayHave(data []byte, name string, begin ...byte) bool {
	for {
		at := bytes.Index(data, []byte(name))
		if at < 0 {
			return false
		}
		data = data[at+len(name):]
		if follows(data, append([]byte{'"', ':'}, begin...)...) {
			return true
		}
	}
}

// isError reports whether data is an object whose first member is an error, as vLLM sends it.
func isError(data []byte) bool {
	return follows(data, []byte(`{"error":`)...)
}

// follows reports whether data begins with these bytes, white space before each of them not counted.
func follows(data []byte, want ...byte) bool {
	for _, c := range want {
		data = bytes.TrimLeft(data, " \t\r\n")
		if len(data) == 0 || data[0] != c {
			return false
		}
		data = data[1:]
	}
	return true
}
