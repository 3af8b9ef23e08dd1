// Package connector has the engine side of vLLM's KV connectors: how each loads KV of other engines into the blocks of a request, and what a
// finished request leaves for others.
package connector

import (
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
)

// New returns the configured connector.
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
