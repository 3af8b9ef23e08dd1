package e2e

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// What a client or an operator may have written where it must not be seen again. Every one is in some place
// of a request or of the configuration, and in no name that the program makes.
const (
	canaryID       = "CANARY-conversation-4711"
	canaryPrompt   = "CANARYPROMPT says nothing."
	canaryKey      = "CANARY-bearer-token"
	canaryTenant   = "CANARY-tenant"
	canaryRedis    = "CANARY-redis-password"
	canarySecret   = "CANARY-secret-of-all-replicas"
	canaryUpstream = "CANARY-upstream-key"
)

// monitor collects all commands that a server gets until the test ends.
func monitor(t *testing.T, address, password string) *writes {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	noError(t, err)
	seen := &writes{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(seen, conn)
	}()
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nMONITOR\r\n", password); err != nil {
		t.Fatal(err)
	}
	if !within(nemesisPatience, func() bool { return strings.Count(seen.String(), "+OK") == 2 }) {
		t.Fatalf("MONITOR: %q", seen)
	}
	return seen
}

// What a client or an operator has written is in nothing that leaves the program, whatever way a turn goes.
func TestReplicas_NothingOfAClientIsInRedisOrLogs(t *testing.T) {
	redis := redistest.Start(t, "--requirepass", canaryRedis)
	commands := monitor(t, redis.Addr(), canaryRedis)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		noError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	args := []string{
		"--log-level", "debug", "--tenant-header", "X-Tenant", "--secret-file", file("secret", canarySecret),
		"--redis-url", "redis://" + redis.Addr(), "--redis-password-file", file("password", canaryRedis),
	}
	r := startTraced(t, []string{"OPENAI_API_KEY=" + canaryUpstream, "OTEL_TRACES_SAMPLER=always_on"}, args...)
	log, ids := r.log, r.talkOfSecrets(t)
	r.setFault(t, r.prefill[0], vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: 400, Count: 1})
	r.turn(t, &history{}, traceOf(0), true, object{"conversation_id": canaryID, canaryPrompt: 1, "user": canaryPrompt})
	r.turn(t, &history{}, traceOf(1), true, object{"model": canaryPrompt, "conversation_id": canaryID})
	r.traces.of(t, traceOf(0), 3)
	r.traces.of(t, traceOf(1), 3)

	if n := strings.Count(log.String(), `"X-KV-Reuse"`) + strings.Count(log.String(), `"reuse":"hit`); n == 0 {
		t.Fatalf("no hit is logged: %s", log)
	}
	r.traces.mu.Lock()
	sent := r.traces.raw.String()
	if !slices.ContainsFunc(r.traces.spans, func(s exported) bool { return s.attribute("carryover.reuse.outcome") == "hit" }) {
		t.Error("no hit is exported")
	}
	r.traces.mu.Unlock()
	held := ""
	for key := range strings.Lines(redis.CLI("KEYS", "*")) {
		held += key + redis.CLI("HGETALL", strings.TrimSpace(key)) + "\n"
	}
	seen := map[string]string{"what is exported": sent, "log": log.String(), "commands": commands.String(), "keys and values": held}
	for _, path := range []string{"/health", "/readyz", "/version", "/healthz"} {
		status, body := r.get(t, r.base+path)
		if !json.Valid([]byte(body)) {
			t.Fatalf("%s: %d %q", path, status, body)
		}
		seen[path] = body
	}
	for _, path := range []string{"/metrics", "/admin/instances"} {
		status, body := r.get(t, r.operators+path)
		if status != http.StatusOK || len(body) < 100 {
			t.Fatalf("%s: %d %q", path, status, body)
		}
		seen[path] = body
	}
	if !strings.Contains(seen["/metrics"], `carryover_turns_total{follow_up="true",outcome="hit"`) || !strings.Contains(seen["/metrics"], "carryover_redis_up 1") {
		t.Fatalf("the metrics have nothing of the conversations: %s", seen["/metrics"])
	}
	if !strings.Contains(seen["commands"], "hmget") && !strings.Contains(seen["commands"], "HMGET") || len(seen["keys and values"]) < 500 {
		t.Fatalf("nothing of the conversations was seen in Redis: %.300s", seen["keys and values"])
	}
	for place, text := range seen {
		wantHidden(t, place, text, ids, canaryID, canaryPrompt, canaryKey, canaryTenant, canarySecret, canaryUpstream)
		if place != "commands" && strings.Contains(text, canaryRedis) { // MONITOR hides AUTH itself
			t.Errorf("%s shows the password of Redis", place)
		}
		host := authority(r.decode[0])
		if inRedis := place == "commands" || place == "keys and values"; inRedis && !strings.Contains(text, host) {
			t.Errorf("%s does not show decode's name: this looks in the wrong place", place)
		}
	}
}

// talkOfSecrets holds a conversation of each API and returns the ids of a prompt in it.
func (r *rig) talkOfSecrets(t *testing.T) []int {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer " + canaryKey}, "X-Tenant": {canaryTenant}}
	var ids []int
	hits := 0
	for _, api := range []string{talkChat, talkText} {
		h := &history{}
		for turn := range 6 {
			members := object{"model": "sim", "max_tokens": 40, "stream": turn%2 == 0, "conversation_id": canaryID + api, "user": canaryID}
			path := "/v1/chat/completions"
			h.messages = append(h.messages, question(canaryPrompt+" "+longText(turn)))
			h.prompt += canaryPrompt + " " + longText(turn)
			if api == talkText {
				path = "/v1/completions"
				members["prompt"] = h.prompt
			} else {
				members["messages"] = h.messages
			}
			a, err := r.post(t.Context(), path, header, encode(members), unwatched)
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("%s turn %d: %v, %+v", api, turn, err, a)
			}
			if a.hit() {
				hits++
			}
			h.messages = append(h.messages, a.assistant())
			h.prompt += a.content
		}
		if api == talkChat {
			body := encode(object{"model": "sim", "max_tokens": 1, "messages": h.messages[:1], "return_token_ids": true})
			raw, err := vllmsim.Lone(t.Context(), r.cfg, "/v1/chat/completions", body)
			noError(t, err)
			ids, _ = idsOf(&answered{raw: raw}, nil)
		}
	}
	if hits == 0 || len(ids) < 32 {
		t.Fatalf("%d hits, %d ids: nothing was shown", hits, len(ids))
	}
	return ids
}

// wantHidden asserts that a text shows none of these words, however they are spelt, and no eight ids from the middle of a prompt.
func wantHidden(t *testing.T, place, text string, ids []int, words ...string) {
	t.Helper()
	for _, word := range words {
		for _, spelt := range []string{word, hex.EncodeToString([]byte(word)), base64.StdEncoding.EncodeToString([]byte(word))[:len(word)]} {
			if strings.Contains(text, spelt) {
				t.Errorf("%s shows %q", place, word)
			}
		}
	}
	var little, big []byte
	var decimal []string
	for _, id := range ids[len(ids)/2 : len(ids)/2+8] {
		little = binary.LittleEndian.AppendUint32(little, uint32(id))
		big = binary.BigEndian.AppendUint32(big, uint32(id))
		decimal = append(decimal, strconv.Itoa(id))
	}
	for _, spelt := range []string{string(little), string(big), strings.Join(decimal, ","), strings.Join(decimal, ", ")} {
		if strings.Contains(text, spelt) {
			t.Errorf("%s shows token ids", place)
		}
	}
}
