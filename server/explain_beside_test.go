package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Operators ask while turns run: under the race detector, and with the hits that there would be without them.
func TestExplain_WhileTurnsRun(t *testing.T) {
	r := newRig(t, setup{prefills: 2, decodes: 2, cfg: releasing})
	done := make(chan struct{})
	h := r.server.ExplainHandler()
	var asking, turns sync.WaitGroup
	for n := range 2 {
		asking.Go(func() {
			for {
				for _, c := range []string{"c0", "c1", "c2", "none"} {
					asked := fmt.Sprintf(`{"path":%q,"headers":{"X-Conversation-Final":%q},"body":%s}`, chatPath, fmt.Sprint(n == 0), ask(c, true, history(4)...))
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/admin/explain", strings.NewReader(asked)))
					if w.Code != http.StatusOK {
						t.Errorf("explain: status %d, %s", w.Code, w.Body)
						return
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for c := range 3 {
		turns.Go(func() {
			for n := range 12 {
				p := r.turn(fmt.Sprint("c", c), n+1, n%2 == 0)
				// Three turns learn what is known of a pair at first. There are four pairs, and another conversation may have the first
				// ticket of one.
				if reuse := p.reuse(); n > 2 && !strings.HasPrefix(reuse, "hit;") && reuse != "miss;reason=pair_on_trial" {
					t.Errorf("conversation %d, turn %d: %q, want a hit", c, n+1, reuse)
				}
			}
		})
	}
	turns.Wait()
	close(done)
	asking.Wait()
}
