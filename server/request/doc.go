// Package request reads what a client asks for: HTTP in, a [Request] out. It needs neither an engine nor the store. The steps take values and
// return their results, because turns and counts of tokens need different ones:
//
//  1. who asks: the tenant, by the credential or a gateway's header                           tenant.go
//  2. receive the body within limits of size, time, rate and memory, and decode it            receive.go, buffer.go, inflight.go, coding.go
//  3. understand it: API, model, conversation, prefill instance, the client's trace context   request.go, conversation.go, content.go, headers.go, trace.go
//
// A Request does not change after that. It does not hold the client's body, so that the body can be freed while the answer is on its way.
// What a client did wrong is an [Error]; its shape on the wire is the server's.
package request
