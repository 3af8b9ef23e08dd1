//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// droppedRelease is line 4 for prefill: a release leg that is a stream, dropped at its first event, leaves prefill nothing. One that ends by
// itself does: prefill holds its block for a lease of 30 s, and its worker spins for as long (measured on vLLM 0.32: 25 to 37 s of CPU
// in 35 s, against 1.3).
func (s *suite) droppedRelease(t *testing.T) string {
	heldByPrefill, heldByDecode := s.prefill.counted(t).pinned, s.decode.counted(t).pinned
	_, ticket, _ := s.legs(t, oneShot(300), nil)
	delete(ticket, "output_token_ids")
	if s.decode.counted(t).pinned <= heldByDecode {
		t.Fatal("decode holds nothing: there is no ticket")
	}
	params := object{}
	maps.Copy(params, ticket)
	maps.Copy(params, object{"do_remote_decode": true, "do_remote_prefill": false, "remote_num_tokens": 0})
	began := time.Now()
	s.firstEvent(t, s.prefill.url+pathText, object{
		"model": model, "prompt": "Release.", "max_tokens": 64, "ignore_eos": true, "stream": true, paramsName: params,
	})
	took := time.Since(began)
	free := s.freed(t, "after the release", heldByDecode)
	if now := 0; !inTime(freeLimit, func() bool { now = s.prefill.counted(t).pinned; return now <= heldByPrefill }) {
		t.Errorf("prefill holds %d blocks %s after the release, %d before", now, freeLimit, heldByPrefill)
	}
	return fmt.Sprintf("leg %s, decode free %s later", seconds(took), seconds(free))
}

// firstEvent asks for a stream, and drops it at its first event.
func (s *suite) firstEvent(t *testing.T, url string, body object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), turnLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(encode(body))))
	noError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	noError(t, err)
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: {") {
		t.Fatalf("status %d, first line %q, %v", resp.StatusCode, line, err)
	}
}
