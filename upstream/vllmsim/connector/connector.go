// Package connector has the engine's side of vLLM's KV connectors: how each brings KV of other engines into the blocks of a request, and what
// a finished request leaves for others.
package connector

import (
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

// New returns the connector that is configured.
func New(e *engine.Engine) engine.Connector {
	switch e.Cfg.Connector {
	case config.ConnectorLMCache:
		return newLMCache(e)
	case config.ConnectorLMCacheStorage:
		return &storage{engine.Idle{Engine: e}}
	case config.ConnectorMooncake:
		return newMooncake(e)
	default:
		return newNIXL(e)
	}
}
