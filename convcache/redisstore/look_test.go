package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

func TestStore_LookTellsWhatTheServerDoesWithItsMemory(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl")
	store, err := redisstore.New(Config{Addresses: []string{server.Addr()}, Secret: sharedSecret(t), Now: func() time.Time { return time.Now().Add(-time.Hour) }})
	must(t, err)
	defer func() { _ = store.Close() }()
	seen, err := store.Look(t.Context())
	if err != nil || seen.MaxMemory != 64<<20 || seen.Eviction != "volatile-ttl" || seen.Apart.Round(time.Minute) != time.Hour {
		t.Errorf("Look = %+v, %v, want 64 MiB, volatile-ttl and a clock that is an hour ahead", seen, err)
	}
	if keys := server.CLI("DBSIZE"); keys != "0" && keys != "(integer) 0" {
		t.Errorf("looking has left %s keys", keys)
	}
}

func TestStore_LookSaysThatTheUserIsRefused(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "right")
	store, err := redisstore.New(Config{Addresses: []string{server.Addr()}, Password: "wrong", Secret: sharedSecret(t)})
	must(t, err)
	defer func() { _ = store.Close() }()
	if _, err := store.Look(t.Context()); !errors.Is(err, convcache.ErrRemoteForbids) {
		t.Errorf("Look = %v, want ErrRemoteForbids", err)
	}
}
