package server_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/server"
)

// The list of models is asked for with the credential that a turn of the same client would bring, by whichever header it comes: with our own
// key in its place, a client whom the engines refuse would read the list.
func TestCredential_OfModelsIsThatOfTurns(t *testing.T) {
	r := newRig(t, setup{cfg: forwards})
	for _, row := range []struct {
		header []string
		want   string
	}{
		{[]string{"X-Api-Key", "mine"}, "Bearer mine"},
		{[]string{"Authorization", "Bearer mine"}, "Bearer mine"},
		{[]string{"Authorization", "Bearer mine", "X-Api-Key", "other"}, "Bearer mine"},
		{nil, "Bearer upstream-key"},
	} {
		seen := ""
		r.decode[0].models = func(w http.ResponseWriter, q *http.Request, l leg) {
			seen = q.Header.Get("Authorization")
			listing("m")(w, q, l)
		}
		if p := r.do(t.Context(), http.MethodGet, "/v1/models", nil, row.header...); p.status != http.StatusOK || seen != row.want {
			t.Errorf("%q: status %d, the engine saw %q, want %q", row.header, p.status, seen, row.want)
		}
		r.wantOK(r.send(ask("", false, "q"), row.header...), "miss;")
		for _, legs := range [][]leg{r.prefill[0].seen(), r.decode[0].seen()} {
			if got := legs[len(legs)-1].header.Get("Authorization"); got != row.want {
				t.Errorf("%q: a leg brings %q, want %q", row.header, got, row.want)
			}
		}
	}
}

// Of a gateway that adds its line to the client's own, either could be believed, and each hop may choose another one.
func TestCredential_RepeatedIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*server.Config){
		"as tenant": func(*server.Config) {}, "forwarded": forwards,
		"beside a tenant header": byTenant,
	} {
		r := newRig(t, setup{cfg: change})
		headers := []string{"Authorization", "X-Api-Key", "X-Tenant"}
		if name != "beside a tenant header" {
			headers = headers[:2]
		}
		for _, header := range headers {
			twice, code := []string{header, "Bearer a", strings.ToLower(header), "Bearer b"}, "invalid_credential"
			if header == "X-Tenant" {
				code = "invalid_tenant"
			}
			for path, request := range map[string]string{
				"POST " + chatPath: ask("c", true, "q"), "POST /v1/messages": `{"model":"m","max_tokens":1,"messages":[]}`,
				"POST /v1/messages/count_tokens": `{"model":"m","messages":[]}`, "GET /v1/models": "",
			} {
				if header == "X-Tenant" && request == "" {
					continue // which is of no tenant
				}
				method, path, _ := strings.Cut(path, " ")
				p := r.do(t.Context(), method, path, strings.NewReader(request), twice...)
				if p.status != http.StatusBadRequest || !strings.Contains(p.body, header) || path == chatPath && !strings.Contains(p.body, `"code":"`+code+`"`) || strings.Contains(p.body, "Bearer") {
					t.Errorf("%s, %s: %s twice: got %d %s, want 400 with the header's name", name, path, header, p.status, p.body)
				}
			}
			conn := r.dial() // refused by its headers alone
			_, _ = io.WriteString(conn, wire("POST "+chatPath, "", "Content-Length: 1000000", header+": a", header+": b"))
			if got := r.answers(conn, http.MethodPost, 1); !slices.Equal(got, []int{400}) {
				t.Errorf("%s, %s: got %v before the body has come; want 400", name, header, got)
			}
		}
		r.wantUntouched()
	}
}
