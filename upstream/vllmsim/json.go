package vllmsim

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"carryover/upstream/vllmsim/fault"
)

var jsonNull = json.RawMessage("null")

// jsonBody reads a body with the content type application/json.
func jsonBody(req *http.Request) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, invalidBody("", "Unsupported Media Type: Only 'application/json' is allowed")
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return body, nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand never fails
	return hex.EncodeToString(b)
}

// marshal writes compact JSON without HTML escapes, as vLLM does.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// rawJSON is marshal for values that always encode.
func rawJSON(v any) json.RawMessage {
	raw, err := marshal(v)
	if err != nil {
		return jsonNull
	}
	return raw
}

func rawIDs(ids []int32) json.RawMessage {
	raw := make([]byte, 0, 6*len(ids)+2)
	raw = append(raw, '[')
	for i, id := range ids {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = strconv.AppendInt(raw, int64(id), 10)
	}
	return append(raw, ']')
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := marshal(v)
	if err != nil {
		return err
	}
	if f, ok := w.(*faultWriter); ok {
		switch f.fault.Kind {
		case fault.LostAnswer:
			return errConnectionGone
		case fault.LostStatus:
			return &apiError{status: f.fault.Status, kind: errorType(f.fault.Status), message: "simulated fault"}
		}
		body = f.mangle(body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return errConnectionGone
	}
	return nil
}

// pythonFloat writes a number as Python writes a float.
func pythonFloat(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
