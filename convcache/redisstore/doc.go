// Package redisstore keeps tickets and marks of engines on one Redis or Valkey that replicas share: a single server, one behind
// Sentinels, or a Cluster. It is the convcache.Remote of convcache.Shared, which knows what to do when Redis does not
// answer; here an operation is sent once, and says what happened.
//
// The package promises:
//
//   - A ticket is handed out at most once, ever: whether it has been taken is decided by one script on one server, and
//     only for tickets that were put while this server was master (take.lua, put.lua, the fence in shared.lua). After a
//     failover, a failback or a restart from a file all older tickets are Fenced.
//   - A ticket ends by the first of three clocks: the server's at the take, the key's expiry, and this process' against
//     the deadline in the value (take.lua, put.lua, store.go).
//   - A command whose answer did not come is not sent again, by this package or by go-redis, and in a Cluster goes to
//     the one master that has the slot (config.go, servers.go).
//   - An error says whether it is certain that nothing was applied, and whether it shows a failure of the server: one
//     that is slow with what is large has none (error.go, servers.go). Its text repeats no credential.
//   - Values tell nothing of what was said, only holders of the secret can make them, and none can be moved into the
//     place of another (envelope.go, codec.go). What the scripts need to know to displace superseded tickets are tags
//     under a key of the conversation (put.go).
//   - A note is put, shown, taken, displaced and counted like a ticket, and ends like one: after a failover it is shown as
//     before, and Fenced when it is taken. It displaces notes only, and is not stored where a branch outdates it or four
//     tickets leave no room; since only holders of the secret can tell the former, a put asks and is sent again (put.lua,
//     put.go). Whether a branch is a note's, the index shows to readers of Redis; of which instance, only its value does.
//   - Only holders of the secret can quarantine an incarnation, or drain an instance, for all replicas (marks.go).
//   - A Take that returns a ticket has read the epoch of the fleet behind it (store.go).
//   - What a replica pins counts until it tells another number, or for five seconds (marks.go).
//   - Each message that a replica publishes reaches each replica at most once (channel.go).
//
// It refuses values that it cannot read: a value of another version or secret is a miss, and a warning once a
// minute says so (error.go). It reads payloads of its own version only (codec.go). Test tells operators what the server
// lacks (check.go), and Look how it is configured (check.go). It has one limit: a program that may write to Redis can put
// back a value that was taken.
//
// # The protocol
//
//   - One step on one server. A conversation is one hash. A look-up is one HMGET for each of at most four
//     conversations, sent to a server together (servers.go); take and put are Lua scripts. Reading
//     and deleting as two commands gave 60 to 78 tickets to two takers in 2.4 seconds.
//   - A fence. Redis forgets acknowledged writes when it fails over, and remembers deleted ones. A put records
//     master_replid, and a take refuses a ticket that was put under another one (the client sees store_failed_over). It
//     changes at every promotion, resynchronisation and restart, and only a master has one; run_id is the same after
//     failover and failback. So a failover costs each live conversation one miss. The fence doesn't see a key that a
//     failed MIGRATE has left on two nodes of a Cluster, when its slot comes back to the first.
//   - One home. A ticket is in Redis, or in this replica's memory if it is larger than 256 KiB or if Redis
//     certainly does not have it (the breaker is open, nothing could be dialled, the server refused the command before
//     it changed anything). It is never in both.
//   - Nothing is sent twice. A take or put without an answer is final: the ticket is lost, and one that was to be put
//     may be there or not. The client library's own retries are off. Its Cluster client repeats a command whose answer
//     was lost whatever its options say, so commands go through the client of the one master that has the slot.
//
// Tickets from more than two seconds in the future show that clocks disagree, and are refused.
//
// # Secrecy
//
// Values are authenticated with HMAC-SHA256 under the shared secret, bound to conversation, ticket and field. They hold
// the keyed chain and outline, decode's name and its params, and neither text nor ids. The ACL has to keep writers out:
// nothing here stops one from putting back a value that was taken.
//
// # When Redis is slow or away
//
// An operation takes at most the store's time limit (5 ms). After five failures in a row, or half of at least twenty
// within a second, nothing is sent any more; a test that puts and takes a ticket of no conversation is made after 1, 2 …
// 30 s until it succeeds. The same test runs every 5 s while all is well: two that fail, or one that is refused, close
// Redis off, since a server that is full answers every HMGET. It runs at start, too, and Carryover does not start if the
// server answers and forbids what is needed. A time-out that size explains doesn't count: of a put of more than 64 KiB,
// or of a look-up whose pipelined TIME was answered.
//
// The epoch of the fleet is one number, which every look-up and take reads (marks.go): while the one master of a Cluster
// that has it does not answer, no ticket is used. Marks of engines are one hash without a fence; its values are authenticated, and it lives for 24 h
// after the last one was added. What a failover loses, the replica that knows it publishes again.
//
// # Cost
//
// BenchmarkRedis_Turn (two cores, loopback, medians, 4k tokens in blocks of 16): look-up, take and put together, without
// the HMGET of the epoch behind the take, are 0.30 to 0.38 ms on an idle machine, 4.4 to 4.8 bare GETs of go-redis, and
// 0.15 ms where the cores are kept awake. A ticket of 128k tokens has 118 to 122 kB and costs 1.5 to 1.6 ms. With Redis
// stopped an operation takes 5.5 ms until the fifth, and 0.2 µs after that.
package redisstore
