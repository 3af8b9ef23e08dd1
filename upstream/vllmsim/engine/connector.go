package engine

import "context"

// Connector is the engine side of a KV connector. It loads the KV of a prompt that the engine's own prefix cache lacks, and decides what a
// finished request leaves for other engines. It belongs to one engine.
type Connector interface {
	// Arrive sees a request before the request waits for anything. An error ends the request.
	Arrive(r *Run) error
	// Beat is called every sixth of a lease while the request waits.
	Beat(ctx context.Context, r *Run)
	// Fetch loads KV from others into r.Blocks, behind the r.Local tokens of the own prefix cache, and sets r.External to the number of
	// tokens.
	Fetch(ctx context.Context, r *Run) error
	// Prompted is called when the KV of the prompt is complete, before the first token is sampled.
	Prompted(ctx context.Context, r *Run) error
	// Finish pins or frees r.Blocks after the last token of a request, and returns the answer's kv_transfer_params, nil for null. The caller
	// holds e.Mu.
	Finish(r *Run) *ParamsOut
	// Drop is called for a request that ends without an answer, before its blocks are freed. The caller holds e.Mu.
	Drop(r *Run, cause error)
	// Rejected is called for a request that was refused before it reached the engine.
	Rejected(p *ParamsIn)
	// Answer performs a side-channel request that is not NIXL's. ok is false if the connector does not know the request.
	Answer(req SideRequest) (reply SideReply, ok bool)
	// Gauges sets the counts of what the connector holds now. The caller holds e.Mu.
	Gauges(s *Stats)
	// Stop ends everything that the connector has started. The engine's ctx has ended.
	Stop()
}

// Idle is a connector that does nothing. Other connectors embed it.
type Idle struct{ Engine *Engine }

// Arrive does nothing.
func (Idle) Arrive(*Run) error { return nil }

// Beat does nothing.
func (Idle) Beat(context.Context, *Run) {}

// Fetch brings nothing.
func (Idle) Fetch(context.Context, *Run) error { return nil }

// Prompted does nothing.
func (Idle) Prompted(context.Context, *Run) error { return nil }

// Drop does nothing.
func (Idle) Drop(*Run, error) {}

// Rejected does nothing.
func (Idle) Rejected(*ParamsIn) {}

// Answer knows no request.
func (Idle) Answer(SideRequest) (SideReply, bool) { return SideReply{}, false }

// Gauges sets nothing.
func (Idle) Gauges(*Stats) {}

// Stop does nothing.
func (Idle) Stop() {}

// Finish frees the blocks.
func (c Idle) Finish(r *Run) *ParamsOut {
	c.Engine.Free(r.Blocks)
	return nil
}
