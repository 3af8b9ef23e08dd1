package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// readAll reads messages to the end of the connection, bodies in one go or by pieces.
func readAll(from io.Reader, pieces bool) (bodies [][]byte, err error) {
	w := NewReader(from)
	for {
		if _, err := w.Head(); err != nil {
			return bodies, err
		}
		var body []byte
		if !pieces {
			body, err = w.Body(nil)
		}
		for pieces && err == nil {
			var part []byte
			part, err = w.Piece()
			body = append(body, part...)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return bodies, err
		}
		err = nil
		bodies = append(bodies, body)
	}
}

// FuzzWire reads any bytes as messages: what comes of them does not depend on how they arrive or are taken.
func FuzzWire(f *testing.F) {
	f.Add([]byte("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX-Request-Id: r\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5;a=b\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nTrailer: x\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		want, wantErr := readAll(bytes.NewReader(text), false)
		total := 0
		for _, body := range want {
			total += len(body)
		}
		if total > len(text) {
			t.Fatalf("%d bytes of bodies in %d bytes", total, len(text))
		}
		for _, pieces := range []bool{false, true} {
			got, err := readAll(iotest.OneByteReader(bytes.NewReader(text)), pieces)
			if len(got) != len(want) || !bytes.Equal(bytes.Join(got, nil), bytes.Join(want, nil)) || (err == nil) != (wantErr == nil) {
				t.Fatalf("pieces %v: got %q, %v, want %q, %v", pieces, got, err, want, wantErr)
			}
		}
	})
}

func TestWire_Refuses(t *testing.T) {
	for name, text := range map[string]string{
		"another protocol":      "HTTP/1.0 200 OK\r\n\r\n",
		"a short status":        "HTTP/1.1 20\r\n\r\n",
		"a header without name": "GET / HTTP/1.1\r\nfoo\r\n\r\n",
		"a negative length":     "GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
		"a huge length":         "GET / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
		"another coding":        "GET / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
		"a chunk without size":  "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\r\n",
		"a bare line feed":      "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\nx\r\n",
		"a chunk that goes on":  "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxx\r\n",
		"half a body":           "GET / HTTP/1.1\r\ncontent-length: 3\r\n\r\nxx",
		"half a chunk":          "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nxx",
		"half a head":           "GET / HTTP/1.1\r\n",
		"a large head":          "GET / HTTP/1.1\r\nx: " + string(make([]byte, wireBuffer)) + "\r\n\r\n",
	} {
		if bodies, err := readAll(bytes.NewReader([]byte(text)), false); len(bodies) > 0 || err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %q, %v", name, bodies, err)
		}
	}
}

// FuzzScan reads any bytes as an object: where they are one, its members are those that encoding/json finds.
func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"a \"b\" \\"}],"stream":true,"n":[[1,2],[3]],"x":null , "y" : -1.5e+3}`))
	f.Add([]byte(` { } `))
	f.Add([]byte(`{"a":[{"b":["c",{}]},[]],"d":"\\\\\""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil || want == nil || bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxNesting {
			return
		}
		got := map[string]json.RawMessage{}
		if err := EachMember(text, func(name, value []byte) {
			var key string
			if err := json.Unmarshal([]byte(`"`+string(name)+`"`), &key); err != nil {
				t.Fatalf("name %q: %v", name, err)
			}
			got[key] = value
		}); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if len(got) != len(want) {
			t.Fatalf("%q: got %q, want %q", text, got, want)
		}
		for key, value := range want {
			if !bytes.Equal(got[key], value) {
				t.Errorf("%q: %q is %q, want %q", text, key, got[key], value)
			}
		}
	})
}
