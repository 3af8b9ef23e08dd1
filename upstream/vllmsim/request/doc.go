// Package request reads the bodies of requests like vLLM, and refuses what vLLM refuses, in its words. A Messages or Responses body becomes a
// chat body (Messages.ChatRequest, Responses.ChatRequest), so that all APIs take the same way through the engine. params.go reads
// kv_transfer_params, and recognises hand-backs and releases.
package request
