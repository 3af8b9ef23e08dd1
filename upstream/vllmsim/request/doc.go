// Package request reads the bodies of requests as vLLM does, and refuses what it refuses, in its words. A body of the Messages or the
// Responses API becomes one of chat (Messages.ChatRequest, Responses.ChatRequest), so that all APIs take the same way through the engine.
//
// params.go reads kv_transfer_params, and recognises hand-backs and releases.
package request
