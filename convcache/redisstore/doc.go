// Package redisstore is the convcache.Remote on Redis or Valkey: a single server, one behind Sentinels, or a Cluster.
//
// A conversation is one hash. A look-up is one HMGET of at most four conversations on a server (servers.go); take and put are one Lua script
// each. With reading and deleting as two commands, two takers got 60 to 78 tickets twice within 2.4 seconds. The package promises:
//
//   - Take returns a ticket at most once. Redis forgets acknowledged writes in a failover, deletes among them. So a put records
//     master_replid, and a take refuses a ticket from under another one (shared.lua): it is Fenced. master_replid changes at every
//     promotion, resynchronisation and restart; run_id stays the same after failover and failback. The fence misses a key that a failed
//     MIGRATE left on two nodes of a Cluster, if its slot returns to the first.
//   - A ticket ends by the first of three clocks: the server's at the take, the key's expiry, and this process' (take.lua, store.go).
//   - No command is sent twice. A take or put without an answer is final: the ticket is lost, or may be stored. go-redis' own retries are
//     off (config.go), but its Cluster client always repeats a command without an answer, so commands go through the client of the slot's
//     master (servers.go).
//   - An error says whether the operation certainly changed nothing, and whether it shows a failure of the server. A time-out that size
//     explains shows none: a put of more than 64 KiB, or a look-up whose pipelined TIME was answered (servers.go). No error contains a
//     credential (error.go).
//   - Values hold keyed chains and outlines, decode's name and its params, but no text and no ids. They are authenticated by HMAC-SHA256 for
//     their conversation, ticket and field (envelope.go), and scripts compare tags under a key of the conversation (put.go). But a
//     program that may write to Redis can put back a value that was taken; the ACL must prevent that.
//   - A note is handled like a ticket, but displaces only notes. Its put asks first what outdates it, because only holders of the secret
//     can tell (put.lua, put.go). A reader of Redis sees that a branch is a note, but not its instance.
//   - A value that cannot be read, of another version or secret, is a miss, with one warning a minute (codec.go, error.go).
//   - A Take that returns a ticket has then read the fleet's epoch (store.go). While the master with the epoch does not answer, no ticket is
//     used. Marks of engines live for 24 h after the last one; a replica publishes again what a failover lost (marks.go).
//
// Measured on two cores over loopback, medians, with 4k tokens in blocks of 16: look-up, take and put together, without the HMGET of the
// epoch after the take, cost 0.30 to 0.38 ms on an idle machine (4.4 to 4.8 GETs of go-redis), and 0.15 ms with cores kept awake. A ticket of
// 128k tokens has 118 to 122 kB and costs 1.5 to 1.6 ms. With Redis stopped an operation takes 5.5 ms, and after five failures 0.2 µs.
package redisstore
