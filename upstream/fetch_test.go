package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

func TestClient_PostTellsEveryStatus(t *testing.T) {
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" {
			answerJSON(`{"tokens":[1]}`)(w, r)
			return
		}
		answers(http.StatusNotFound, "no")(w, r)
	})
	client := newTestClient(t, "")
	for path, want := range map[string]string{"/tokenize": `200 {"tokens":[1]}`, "/nothing": "404 no"} {
		status, body, err := client.Post(t.Context(), instance, path, []byte(`{}`), "", nil)
		if got := fmt.Sprint(status, " ", string(body)); got != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", path, got, err, want)
		}
	}
	instance.BaseURL = "http://127.0.0.1:1"
	if _, _, err := client.Post(t.Context(), instance, "/tokenize", nil, "", nil); err == nil {
		t.Error("a refused connection is returned as an answer")
	}
}

func TestClient_FetchReadsABoundedAnswerWhole(t *testing.T) {
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/broken":
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "abc")
		case "/missing":
			answers(http.StatusNotFound, "no")(w, r)
		default:
			_, _ = io.WriteString(w, r.Method+r.Header.Get("Authorization"))
		}
	})
	client := newTestClient(t, "engine-key")
	for _, row := range []struct {
		path, authorization string
		most                int64
		status              int
		body                string
		err                 error
	}{
		{"/models", "", 20, 200, "GETBearer engine-key", nil},
		{"/models", "Bearer client", 20, 200, "GETBearer client", nil},
		{"/models", "", 19, 200, "", ErrAnswerTooLarge},
		{"/missing", "", 20, 404, "no", nil},
		{"/broken", "", 20, 200, "", io.ErrUnexpectedEOF},
	} {
		status, body, err := client.Fetch(t.Context(), instance, row.path, row.authorization, row.most)
		if status != row.status || string(body) != row.body || !errors.Is(err, row.err) {
			t.Errorf("%s of at most %d bytes: got %d %q, %v, want %d %q, %v", row.path, row.most, status, body, err, row.status, row.body, row.err)
		}
	}
	instance.BaseURL = "http://127.0.0.1:1"
	if status, _, err := client.Fetch(t.Context(), instance, "/models", "", 20); status != 0 || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a refused connection: status %d, %v, want 0, %v", status, err, syscall.ECONNREFUSED)
	}
}

func TestReadFault_ReadsWhatEnginesSay(t *testing.T) {
	for body, want := range map[string]Fault{
		`{"error":{"message":"m","type":"NotFoundError","param":"model","code":404}}`: {"m", "NotFoundError", "model"},
		`{"error":{"message":"m","type":"x","param":null,"code":500}}`:                {"m", "x", ""},
		`{"object":"error","message":"busy","type":"x"}`:                              {"busy", "x", ""},
		`{"error":"Unauthorized"}`:                                                    {Message: "Unauthorized"},
		`{"detail":"Not Found"}`:                                                      {},
		`{"error":{"message":"cut`:                                                    {},
		`nope`:                                                                        {},
		``:                                                                            {},
	} {
		if got := ReadFault([]byte(body)); got != want {
			t.Errorf("%s: got %+v, want %+v", body, got, want)
		}
	}
}

func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestClient_PostUsesTheRoomThatSuffices(t *testing.T) {
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
		_, _ = w.Write(raw)
	})
	client := newTestClient(t, "")
	buffer := append(make([]byte, 0, 5<<10), "what was there"...)
	for _, n := range []int{10, 5 << 10, 5<<10 + 1, 100 << 10} {
		want := bytes.Repeat([]byte("b"), n)
		_, answer, err := client.Post(t.Context(), instance, "/", want, "", buffer)
		if used := err == nil && &answer[0] == &buffer[0]; err != nil || !bytes.Equal(answer, want) || used && n > cap(buffer) || !used && n <= cap(buffer) {
			t.Errorf("got %d bytes, in the room %t, %v, want %d in room for %d", len(answer), used, err, n, cap(buffer))
		}
	}
}

// announced is a reader that knows how many bytes it has left.
type announced struct {
	io.Reader
	text *strings.Reader
}

func (a announced) Left() int64 { return int64(a.text.Len()) }

// Memory is asked for before it is taken. Where there is none, what was read is returned, and the rest is left in the reader.
func TestReadWithin_TakesWhatThereIsRoomFor(t *testing.T) {
	for name, row := range map[string]struct {
		size, limit, room int
		read              bool
		asked             int // at most
	}{
		"small":               {100, 1 << 20, 0, true, 0},
		"large":               {3 << 20, 4 << 20, 16 << 20, true, 9 << 20},
		"no room":             {3 << 20, 4 << 20, 0, false, 0},
		"room for a part":     {3 << 20, 4 << 20, 2 << 20, false, 2 << 20},
		"as long as may be":   {4 << 20, 4 << 20, 16 << 20, true, 9 << 20},
		"longer than may be":  {4<<20 + 1, 4 << 20, 16 << 20, false, 13 << 20},
		"a byte of the usual": {4 << 10, 1 << 20, 0, true, 0},
	} {
		for _, known := range []bool{true, false} {
			if name == "a byte of the usual" && !known {
				continue // its end does not come with its last byte
			}
			text, asked := strings.Repeat("x", row.size), 0
			from := strings.NewReader(text)
			r := iotest.DataErrReader(from)
			if known {
				r = announced{r, from}
			}
			body, err := ReadWithin(r, int64(row.limit), nil, func(n int64) bool {
				if asked+int(n) > row.room {
					return false
				}
				asked += int(n)
				return true
			})
			if row.read != (err == nil) || err != nil && !errors.Is(err, ErrAnswerTooLarge) || asked > row.asked {
				t.Errorf("%s, known %t: %v, asked for %d", name, known, err, asked)
			}
			if rest, _ := io.ReadAll(r); string(body)+string(rest) != text || len(body) == 0 {
				t.Errorf("%s, known %t: read %d bytes of %d, and %d later", name, known, len(body), row.size, len(rest))
			}
		}
	}
}
