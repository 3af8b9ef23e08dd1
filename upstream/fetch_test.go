package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
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
		status, body, err := client.Post(t.Context(), instance, path, []byte(`{}`), "")
		if got := fmt.Sprint(status, " ", string(body)); got != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", path, got, err, want)
		}
	}
	instance.BaseURL = "http://127.0.0.1:1"
	if _, _, err := client.Post(t.Context(), instance, "/tokenize", nil, ""); err == nil {
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
