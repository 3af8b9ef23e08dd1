package vllmsim

import (
	"carryover/upstream/vllmsim/config"
	"context"
)

// connector is the engine side of a KV connector. It brings the KV of a prompt that the engine's own prefix cache lacks, and decides what a
// finished request leaves for other engines. It belongs to one engine.
type connector interface {
	// arrive sees a request before the request waits for anything. An error ends the request.
	arrive(r *run) error
	// beat is called every sixth of a lease while the request waits.
	beat(ctx context.Context, r *run)
	// fetch brings KV that others hold into r.blocks, behind the r.local tokens of the own prefix cache, and records the number of tokens
	// in r.external.
	fetch(ctx context.Context, r *run) error
	// prompted is called when the KV of the prompt is complete, before the first token is sampled.
	prompted(ctx context.Context, r *run) error
	// finish pins or frees r.blocks at the end of a request, whose last token is sampled, and returns the answer's
	// kv_transfer_params, nil for null. The caller holds e.mu.
	finish(r *run) *paramsOut
	// drop is called for a request that ends without an answer, before its blocks are freed. The caller holds e.mu.
	drop(r *run, cause error)
	// rejected is called for a request that was refused before it reached the engine.
	rejected(p *paramsIn)
	// answer performs a side-channel request of another kind than NIXL's. ok is false if the connector does not know the request.
	answer(req sideRequest) (reply sideReply, ok bool)
	// stop ends everything that the connector has started. The engine's ctx has ended.
	stop()
}

// newConnector returns the connector that is configured.
func newConnector(e *engine) connector {
	switch e.cfg.Connector {
	case config.ConnectorLMCache:
		return newLMCache(e)
	case config.ConnectorLMCacheStorage:
		return &storage{idle{e}}
	case config.ConnectorMooncake:
		return newMooncake(e)
	case config.ConnectorMoRIIO:
		return newMoRIIO(e)
	case config.ConnectorP2PNCCL:
		return newP2PNCCL(e)
	default:
		return &nixl{idle{e}}
	}
}

// idle is a connector that does nothing. Other connectors embed it for the methods that they do not need.
type idle struct{ engine *engine }

func (idle) arrive(*run) error                    { return nil }
func (idle) beat(context.Context, *run)           {}
func (idle) fetch(context.Context, *run) error    { return nil }
func (idle) prompted(context.Context, *run) error { return nil }
func (idle) drop(*run, error)                     {}
func (idle) rejected(*paramsIn)                   {}
func (idle) answer(sideRequest) (sideReply, bool) { return sideReply{}, false }
func (idle) stop()                                {}

func (c idle) finish(r *run) *paramsOut {
	c.engine.free(r.blocks)
	return nil
}
