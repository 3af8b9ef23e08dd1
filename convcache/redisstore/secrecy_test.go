package redisstore_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

// monitor returns what MONITOR tells of the commands that do makes a server run, those of scripts included, one
// a line and without its time.
func monitor(t *testing.T, s *redistest.Server, do func()) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	lines := bufio.NewReader(conn)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatalf("monitor: %v", err)
	}
	if reply, err := lines.ReadString('\n'); err != nil || reply != "+OK\r\n" {
		t.Fatalf("monitor: got %q, error %v", reply, err)
	}
	do()
	s.CLI("ECHO", "that was all")
	var said strings.Builder
	for {
		line, err := lines.ReadString('\n')
		must(t, err)
		if strings.Contains(line, "that was all") {
			return said.String()
		}
		_, command, _ := strings.Cut(line, "] ")
		said.WriteString(command)
	}
}

// unescape returns the bytes that MONITOR shows as text (sdscatrepr of Redis).
func unescape(t *testing.T, said string) []byte {
	t.Helper()
	var raw []byte
	for line := range strings.Lines(said) {
		for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " ") {
			word, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatalf("read %q: %v", rest, err)
			}
			text, err := strconv.Unquote(word)
			if err != nil {
				t.Fatalf("read %q: %v", word, err)
			}
			raw = append(append(raw, text...), 0)
			rest = rest[len(word):]
		}
	}
	return raw
}

// encodings are the forms in which bytes may show.
func encodings(b []byte) [][]byte {
	return [][]byte{b, []byte(hex.EncodeToString(b)), []byte(base64.StdEncoding.EncodeToString(b)), []byte(base64.RawURLEncoding.EncodeToString(b))}
}

// Of what the store gets, nobody reads the secret, the half of a key that is not its name, and incarnations that are quarantined or pinned. That
// keys, chains and outlines are keyed hashes is tested beside them, and what comes of a whole request in cmd/carryover/e2e.
func TestRedis_TellsNothing(t *testing.T) {
	const incarnation = "http://quarantined-canary:8100 1.7923456789e+09"
	k := sharedSecret(t).Conversation(convcache.Identity{ID: "c"})
	s := redistest.Start(t)
	r, tk, note := openAt(t, s), fullTicket(1), fullNote(2)
	said := unescape(t, monitor(t, s, func() {
		r.check()
		r.put(k, fullTicket(1))
		r.put(k, tk) // displaces
		r.put(k, note)
		r.shows(k, note, tk)
		r.quarantine(incarnation)
		if marks, err := r.Marks(t.Context(), []string{incarnation}); err != nil || len(marks) != 1 {
			t.Errorf("quarantined: got %v, error %v", marks, err)
		}
		_, err := r.SharePinned(t.Context(), incarnation, 10)
		must(t, err)
		r.take(k, tk)
		r.take(k, note)
	}))
	for _, shown := range []string{"10.1.2.3", "decode-one", "prefill-one", "hset"} { // the last by scripts
		if !bytes.Contains(bytes.ToLower(said), []byte(shown)) {
			t.Errorf("%s was not heard: this looks in the wrong place", shown)
		}
	}
	never := append(append(encodings(k[:]), encodings([]byte(incarnation))...), k[16:])
	for _, text := range []string{"the secret of all replicas", "quarantined-canary", "canary:8100", "1.7923456789"} {
		never = append(never, []byte(text))
	}
	for _, one := range never {
		if bytes.Contains(said, one) {
			t.Errorf("it can be read: %q", one)
		}
	}
}

// The index is in clear for the scripts. Of equal prompts in two conversations it shows only their lengths.
func TestRedis_IndexDoesNotTellEqualPrompts(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s)
	tk := fullTicket(1)
	r.put(k1, tk)
	r.put(k2, tk)
	one, two := r.hash(k1)["0i"], r.hash(k2)["0i"]
	for name, at := range map[string][2]int{"last block": {92, 100}, "whole": {100, 108}} {
		if one[at[0]:at[1]] == two[at[0]:at[1]] {
			t.Errorf("the %s tags of two conversations are equal: %x", name, one[at[0]:at[1]])
		}
	}
}
