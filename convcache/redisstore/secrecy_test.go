package redisstore_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net"
	"slices"
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

func TestRedis_TellsNothing(t *testing.T) {
	identity := convcache.Identity{
		Tenant: "canary-tenant", Model: "canary-model", CacheSalt: "canary-salt", SubAgent: "canary-agent", ID: "canary-conversation",
	}
	const incarnation = "http://quarantined-canary:8100 1.7923456789e+09"
	ids := make([]uint32, 100)
	for i := range ids {
		ids[i] = 3_987_654_321 + uint32(i)*7919
	}
	secret := sharedSecret(t)
	k := secret.Conversation(identity)
	tk := Ticket{
		Branch: convcache.Branch{
			ID: convcache.NewTicketID(), Tokens: len(ids),
			Decode:    Holder{Instance: "canary-decode", Incarnation: "canary-incarnation"},
			FreshAsOf: (&clock{}).now(),
		},
		EngineID: "canary-engine",
		Params:   []byte(`{"remote_engine_id":"canary-engine","remote_host":"canary-host","remote_block_ids":[[90001,90002,90003]]}`),
	}
	tk.Chain = mustChain(t, secret.ChainKey(), ids, 16)
	other := tk
	other.ID, other.Params, other.Chain = convcache.NewTicketID(), nil, mustChain(t, secret.ChainKey(), ids[50:], 16)
	parts := []uint64{0x1122334455667788, 0x99aabbccddeeff00}
	tk.Outline, other.Outline = secret.OutlineKey().Outline(tk.ID, parts), secret.OutlineKey().Outline(other.ID, parts)
	foreign := mustChain(t, mustSecret(t, "somebody else's secret").ChainKey(), ids, 16)
	unkeyed := mustChain(t, convcache.ChainKey{}, ids, 16)

	// What no value may tell: identities, hashes of an outline, secret, key, incarnation, ids, and hashes that need no secret.
	never := slices.Concat(encodings(k[:]), encodings([]byte(incarnation)), hashes(foreign), hashes(unkeyed), [][]byte{k[16:]})
	for _, text := range []string{
		"canary-tenant", "canary-model", "canary-salt", "canary-agent", "canary-conversation",
		"the secret of all replicas", "quarantined-canary", "canary:8100", "1.7923456789",
	} {
		never = append(never, []byte(text))
	}
	for _, part := range parts {
		never = append(never, bigEndian(part)[4:], bigEndian(part)[:4])
	}
	for i := range len(ids) - 1 {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			never = append(never, order.AppendUint32(order.AppendUint32(nil, ids[i]), ids[i+1]))
		}
		never = append(never, strconv.AppendUint(nil, uint64(ids[i]), 10))
	}
	s := redistest.Start(t)
	r := openAt(t, s, Config{Prefix: freshPrefix()})
	said := unescape(t, monitor(t, s, func() {
		r.check()
		first := tk
		first.ID = convcache.NewTicketID()
		r.put(k, first)
		r.put(k, tk) // displaces
		r.look(k)
		note := other.Note(Holder{Instance: "canary-prefill", Incarnation: "canary-prefill-incarnation"}, tk.FreshAsOf)
		r.put(k, note)
		r.quarantine(incarnation)
		if marks, err := r.Marks(t.Context(), []string{incarnation}); err != nil || len(marks) != 1 {
			t.Errorf("quarantined: got %v, error %v", marks, err)
		}
		_, err := r.SharePinned(t.Context(), incarnation, 10)
		must(t, err)
		r.take(k, tk)
		r.take(k, note)
	}))
	for _, shown := range []string{"canary-host", "canary-decode", "canary-prefill", "hset"} { // the last by scripts
		if !bytes.Contains(bytes.ToLower(said), []byte(shown)) {
			t.Errorf("%s was not heard: this looks in the wrong place", shown)
		}
	}
	for _, one := range never {
		if bytes.Contains(said, one) {
			t.Errorf("it can be read: %q", one)
		}
	}
}

func bigEndian(hash uint64) []byte { return binary.BigEndian.AppendUint64(nil, hash) }

// hashes are those of a chain, in both byte orders.
func hashes(c Chain) [][]byte {
	var all [][]byte
	for _, hash := range append(slices.Clone(c.Blocks), c.Whole) {
		all = append(all, bigEndian(hash), binary.LittleEndian.AppendUint64(nil, hash))
	}
	return all
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
