// Package connlimit bounds the connections of clients. It promises that
//
//   - the number of open connections is bounded. At the bound a new one takes the place of the one that has been idle, or has sent nothing,
//     for longest, as nginx reuses connections when worker_connections are used up; it waits to be accepted only while every open one is
//     being served;
//   - a connection that serves a request is never closed. A request that arrives at the moment in which its idle connection is closed is
//     lost, as with every server that closes idle connections.
package connlimit
