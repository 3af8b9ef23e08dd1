package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// PythonJSON writes a JSON document as json.dumps(ensure_ascii=False) does after json.loads: members in their order, ", " and ": " as
// separators, floats as repr writes them. Chat templates write tools and arguments in this form.
func PythonJSON(raw []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var out strings.Builder
	if err := pythonValue(&out, dec); err != nil {
		return "", fmt.Errorf("read JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("read JSON: more than one value")
	}
	return out.String(), nil
}

func pythonValue(out *strings.Builder, dec *json.Decoder) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		return pythonContainer(out, dec, v)
	case string:
		pythonString(out, v)
	case json.Number:
		out.WriteString(pythonNumber(v))
	case bool:
		out.WriteString(strconv.FormatBool(v))
	default:
		out.WriteString("null")
	}
	return nil
}

func pythonContainer(out *strings.Builder, dec *json.Decoder, open json.Delim) error {
	out.WriteRune(rune(open))
	for first := true; dec.More(); first = false {
		if !first {
			out.WriteString(", ")
		}
		if open == '{' {
			if err := pythonValue(out, dec); err != nil {
				return err
			}
			out.WriteString(": ")
		}
		if err := pythonValue(out, dec); err != nil {
			return err
		}
	}
	end, err := dec.Token()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(out, end)
	return nil
}

// pythonString escapes what json.dumps escapes. Go also escapes two line separators.
func pythonString(out *strings.Builder, s string) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // never fails for a string
	_, _ = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029", "\n", "").WriteString(out, b.String())
}

// pythonNumber keeps integers.
func pythonNumber(n json.Number) string {
	f, err := n.Float64()
	if !strings.ContainsAny(n.String(), ".eE") || err != nil {
		return n.String()
	}
	return PythonFloat(f)
}

// PythonFloat writes a float as repr does: the shortest digits, with an exponent outside 1e-4..1e16.
func PythonFloat(f float64) string {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
