package server

import "bytes"

// mayHave reports whether data has a member called name whose value begins with these characters, white space between
// them not counted. It looks at bytes only: text may look like a member, and a name in escapes is not found.
func mayHave(data []byte, name, begin string) bool {
	for {
		at := bytes.Index(data, []byte(name))
		if at < 0 {
			return false
		}
		data = data[at+len(name):]
		if value, ok := after(data, `":`); ok {
			if _, ok = after(value, begin); ok {
				return true
			}
		}
	}
}

// isError reports whether data is an object whose first member is an error, as vLLM sends it.
func isError(data []byte) bool {
	_, ok := after(data, `{"error":`)
	return ok
}

// after returns what follows these characters at the beginning of data, white space before each of them not counted.
func after(data []byte, want string) (rest []byte, ok bool) {
	for i := range len(want) {
		data = bytes.TrimLeft(data, " \t\r\n")
		if len(data) == 0 || data[0] != want[i] {
			return nil, false
		}
		data = data[1:]
	}
	return data, true
}
