package redisstore

import (
	"strconv"

	"carryover/convcache"
)

// version is in every name. A change of the fields takes another version.
const version = "1"

// names are what a store's data is called in Redis.
type names struct {
	conversations string // begins the hash of each conversation
	marks         string // the hash of marks of engines
	epoch         string // the hash with the epoch of the fleet
	pinned        string // begins the hash of each incarnation of decode, with what replicas pin on it
	channel       string
}

// newNames returns the names under the prefix of a config. The hash of marks stays "bars": under
// another name replicas of two releases would miss each other's quarantines while a deployment is upgraded. Redis has
// the same channels in all databases.
func newNames(cfg Config) names {
	begin := cfg.Prefix + ":" + version + ":"
	return names{
		conversations: begin + "{", marks: begin + "bars", epoch: begin + "epoch", pinned: begin + "pinned:",
		channel: begin + "channel:" + strconv.Itoa(cfg.DB),
	}
}

// of is the name of a conversation's hash. All of it that differs is the hash tag of Redis Cluster. Other hashes have
// no tag.
func (n names) of(key convcache.Key) string { return n.conversations + key.String() + "}" }
