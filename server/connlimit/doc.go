// Package connlimit bounds the connections of clients, so that no address takes all of them and idle ones don't block others. It promises
// that
//
//   - the number of open connections is bounded; another one waits to be accepted only while every open one is being served;
//   - a connection that has been idle, or has sent nothing, for a second makes room for a new one. The one that has been idle for longest
//     goes first, as nginx reuses connections when worker_connections are used up. While three quarters are in use, idle ones are closed
//     earlier;
//   - an address that has its share gets another connection only in place of an idle one of its own. Known proxies' addresses have no
//     share, because they bring the connections of many clients. An IPv6 address counts as its /64, which one machine has;
//   - a connection that serves a request is never closed. A request that arrives at the moment in which its idle connection is closed is
//     lost, as with every server that closes idle connections.
package connlimit
