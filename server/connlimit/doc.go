// Package connlimit bounds the connections of clients, so that no address has all of them and idle ones are in nobody's way. It promises that
//
//   - at most so many are open at once; another one waits to be accepted only while every open one is being served;
//   - a connection that has been idle, or has sent nothing, for a second makes room for a new one: the one that has been so for longest first,
//     as nginx reuses connections when worker_connections are used up. While three quarters are in use, idle ones end earlier;
//   - an address that has its share gets another connection only in the place of an idle one of its own. Addresses of proxies that are known
//     have no share, because they bring the connections of many clients. An IPv6 address counts with its /64, which one machine has;
//   - a connection that serves a request is never closed. A request that comes at the moment in which its idle connection is closed is lost, as
//     with every server that ends idle connections.
package connlimit
