package vllmsim

import (
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
)

// Configuration. The types have their own packages, so that every package may use them.
type (
	// Config is the configuration of an instance.
	Config = config.Config
	// Timing is the duration of work, in engine time.
	Timing = config.Timing
	// StorageConfig is the configuration of ConnectorLMCacheStorage.
	StorageConfig = config.Storage
	// KVEventsConfig is --kv-events-config.
	KVEventsConfig = config.KVEvents
	// Stats are the counts of an instance since Start, restarts included.
	Stats = engine.Stats
	// HandBackPoint is a point at which HoldHandBacks stops a hand-back.
	HandBackPoint = engine.HandBackPoint
	// Fault makes an instance misbehave.
	Fault = fault.Fault
)

// DefaultConfig returns the configuration of vLLM 0.33 with bidirectional transfer, which puts params on the finish chunk.
func DefaultConfig() Config { return config.DefaultConfig() }

// Release returns the version of a release, given its first two numbers.
func Release(name string) (string, error) { return config.Release(name) }

// Values of Config, described in package config.
const (
	ParamsFinish            = config.ParamsFinish
	ParamsNever             = config.ParamsNever
	SamplingCanonical       = config.SamplingCanonical
	SamplingNoncanonical    = config.SamplingNoncanonical
	TemplateStripReasoning  = config.TemplateStripReasoning
	TemplateThinkingPrompt  = config.TemplateThinkingPrompt
	TemplateTrim            = config.TemplateTrim
	ConnectorNIXL           = config.ConnectorNIXL
	ConnectorLMCache        = config.ConnectorLMCache
	ConnectorLMCacheStorage = config.ConnectorLMCacheStorage
	ConnectorMooncake       = config.ConnectorMooncake
	VLLM032                 = config.VLLM032
	VLLM033                 = config.VLLM033
	LMCacheAsync            = config.LMCacheAsync
	LMCacheSync             = config.LMCacheSync
)

// The points at which hand-backs stop, described in package engine.
const (
	HandBackQueued   = engine.HandBackQueued
	HandBackRead     = engine.HandBackRead
	HandBackComputed = engine.HandBackComputed
)

// The kinds of Fault, described in package fault.
const (
	FaultRefuse              = fault.Refuse
	FaultReset               = fault.Reset
	FaultLostAnswer          = fault.LostAnswer
	FaultLostStatus          = fault.LostStatus
	FaultSilent              = fault.Silent
	FaultStatus              = fault.Status
	FaultErrorBody200        = fault.ErrorBody200
	FaultSlowHeaders         = fault.SlowHeaders
	FaultSlowStream          = fault.SlowStream
	FaultGarbageJSON         = fault.GarbageJSON
	FaultTruncatedJSON       = fault.TruncatedJSON
	FaultWrongContentType    = fault.WrongContentType
	FaultNullParams          = fault.NullParams
	FaultDieBeforeFirstEvent = fault.DieBeforeFirstEvent
	FaultDieMidEvent         = fault.DieMidEvent
	FaultEndWithoutDone      = fault.EndWithoutDone
	FaultDoubleDone          = fault.DoubleDone
	FaultEventAfterDone      = fault.EventAfterDone
	FaultLostID              = fault.LostID
	FaultDoubledID           = fault.DoubledID
	FaultOtherIDs            = fault.OtherIDs
	FaultNoIDEcho            = fault.NoIDEcho
	FaultNoUsage             = fault.NoUsage
	FaultComments            = fault.Comments
	FaultSplitUsage          = fault.SplitUsage
	FaultErrorEvent          = fault.ErrorEvent
	FaultHiddenStart         = fault.HiddenStart
	FaultSlow                = fault.Slow
	FaultNoticeLost          = fault.NoticeLost
)
