package redisstore

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
)

// Client returns the client, for a look at its options and for the faults of tests.
func (s *Store) Client() redis.UniversalClient { return s.servers.client }

// KeyName returns the name of a conversation's hash.
func (s *Store) KeyName(key convcache.Key) string { return s.names.of(key) }

// MarksName returns the name of the hash of all marks.
func (s *Store) MarksName() string { return s.names.marks }

// EpochName returns the name of the hash with the epoch.
func (s *Store) EpochName() string { return s.names.epoch }

// ChannelName returns the name of the channel.
func (s *Store) ChannelName() string { return s.names.channel }

// Mutant returns a store that shares everything with s but the text of its scripts, in which it replaces
// one text by another, and whether that changed anything.
func (s *Store) Mutant(text, by string) (*Store, bool) {
	replace := func(script string) string { return strings.ReplaceAll(script, text, by) }
	m := &Store{
		cfg: s.cfg, servers: s.servers, names: s.names, envelope: s.envelope, lines: s.lines, Channel: s.Channel,
		scripts: newScripts(replace(sharedLua), replace(takeLua), replace(putLua)),
	}
	return m, strings.Contains(sharedLua+takeLua+putLua, text)
}
