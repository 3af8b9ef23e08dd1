package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/template"
)

// Null is the JSON value.
var Null = json.RawMessage("null")

// ReadJSON reads a body with the content type application/json.
func ReadJSON(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return body, nil
}

// RandomHex returns n random bytes in hexadecimal.
func RandomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand never fails
	return fmt.Sprintf("%x", b)
}

// Marshal writes compact JSON without HTML escapes, as vLLM does.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// RawJSON is Marshal for values that always encode.
func RawJSON(v any) json.RawMessage {
	raw, err := Marshal(v)
	if err != nil {
		return Null
	}
	return raw
}

// WriteJSON answers with a value. Faults of whole answers take effect here.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, err := Marshal(v)
	if err != nil {
		return err
	}
	if f, ok := w.(*FaultWriter); ok {
		switch f.fault.Kind {
		case fault.LostAnswer:
			return ErrConnectionGone
		case fault.LostStatus:
			return &Error{Status: f.fault.Status, Kind: ErrorType(f.fault.Status), Message: "simulated fault"}
		}
		body = f.mangle(body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return ErrConnectionGone
	}
	return nil
}

// WriteNotFound answers a request that no endpoint serves.
func WriteNotFound(w http.ResponseWriter) error {
	return WriteJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
}

// PythonFloat writes a number like a Python float.
func PythonFloat(v float64) string { return template.PythonFloat(v) }
