package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
)

// read is how an answer was read.
type read struct {
	status int
	body   string
	clean  bool // it ended where it says that it ends
	again  bool // its connection could serve another request
}

// readBy reads an answer that comes in pieces of a size, into room of another.
func readBy(t *testing.T, answer []byte, piece, room int) (got read, err error) {
	t.Helper()
	conn := &script{pieces: split(string(answer), piece)}
	client := scripted(conn)
	defer client.Close()
	r, err := client.Do(t.Context(), (&raw{authority: "a"}).get())
	if err != nil {
		if !conn.closed.Load() {
			t.Error("the connection of a broken answer is kept")
		}
		return read{}, err
	}
	defer func() { _ = r.Close() }()
	got.status = r.Status
	p := make([]byte, room)
	for err == nil {
		var n int
		n, err = r.Read(p)
		got.body += string(p[:n])
		if n == 0 && err == nil {
			t.Fatal("a read of nothing")
		}
	}
	if !errors.Is(err, io.EOF) {
		if !conn.closed.Load() {
			t.Error("the connection of a broken answer is kept")
		}
		return got, err
	}
	got.clean = true
	got.again = !conn.closed.Load() && conn.Quiet()
	return got, nil
}

// readStd reads an answer as net/http does, and returns what is left behind it.
func readStd(answer []byte) (got read, rest []byte, err error) {
	from := bufio.NewReader(bytes.NewReader(answer))
	for {
		r, err := http.ReadResponse(from, nil)
		if err != nil {
			return read{}, nil, err
		}
		if r.StatusCode < 200 && r.StatusCode != 101 {
			continue
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return read{}, nil, err
		}
		rest, err = io.ReadAll(from)
		return read{status: r.StatusCode, body: string(body), clean: true, again: !r.Close && len(rest) == 0}, rest, err
	}
}

// Whatever is taken for an answer is one to net/http, and the same one, with the same end; and it does not matter in which
// pieces it comes.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		okHead + "{}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\none\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}",
		"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f.Add([]byte(seed), uint8(1), uint8(1))
		f.Add([]byte(seed), uint8(5), uint8(100))
	}
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nHTTP/1.1"), uint8(255), uint8(10))
	f.Fuzz(func(t *testing.T, answer []byte, piece, room uint8) {
		whole, err := readBy(t, answer, len(answer)+1, 4096)
		split, splitErr := readBy(t, answer, int(piece)+1, int(room)+1)
		if err == nil != (splitErr == nil) || split.status != whole.status || split.body != whole.body || split.clean != whole.clean || err != nil && splitErr.Error() != err.Error() {
			t.Errorf("whole: %+v, %v, in pieces: %+v, %v", whole, err, split, splitErr)
		}
		if err != nil {
			return
		}
		std, rest, err := readStd(answer)
		if err != nil {
			t.Fatalf("got %+v, where net/http refuses: %v", whole, err)
		}
		if whole.status != std.status || whole.body != std.body {
			t.Errorf("got %+v, net/http %+v", whole, std)
		}
		if (whole.again || split.again) && (!std.again || len(rest) > 0) {
			t.Errorf("the connection would be used again: net/http has it so: %v, with %q behind the answer", std.again, rest)
		}
	})
}

// Chunks are the same in whatever pieces they are read, and never more than was sent.
func FuzzChunks(f *testing.F) {
	for _, seed := range []string{
		"3\r\none\r\n0\r\n\r\n", "A;x\r\n0123456789\r\n00\r\nA: b\r\n\r\nrest", "fffffffffffffff\r\nx", "1\r\nx\n", "0\r\n\r", "1 \r\nx",
	} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(4))
	}
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8) {
		decode := func(size int) (data, behind []byte, over bool, err error) {
			var c chunks
			for _, p := range split(string(wire), size) {
				if c.state == chunkOver {
					behind = append(behind, p...)
					continue
				}
				n, rest, failed := c.decode(p)
				data, behind = append(data, p[:n]...), append(behind, rest...)
				if failed != nil {
					return data, nil, false, failed
				}
			}
			return data, behind, c.state == chunkOver, nil
		}
		data, behind, over, err := decode(len(wire) + 1)
		d, b, o, e := decode(int(piece) + 1)
		if !bytes.Equal(d, data) || !bytes.Equal(b, behind) || o != over || !errors.Is(e, err) {
			t.Errorf("whole: %q, %q, %v, %v, in pieces: %q, %q, %v, %v", data, behind, over, err, d, b, o, e)
		}
		if over && len(data)+len(behind) > len(wire) {
			t.Errorf("%d bytes, and %d behind the end, of %d", len(data), len(behind), len(wire))
		}
	})
}
