// Package config holds the settings of a simulated instance: its engine, its API, its connector and the release of vLLM that it follows.
package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Values of Config.LoadFailurePolicy.
const (
	PolicyFail      = "fail"
	PolicyRecompute = "recompute"
)

// Values of Config.Params: where a stream carries kv_transfer_params.
const (
	ParamsFinish   = "finish"
	ParamsUsage    = "usage"
	ParamsSeparate = "separate"
	ParamsNever    = "never"
)

// Values of Config.Sampling.
const (
	SamplingCanonical    = "canonical"
	SamplingNoncanonical = "noncanonical"
)

// Values of Config.Template.
const (
	TemplateChatML         = "chatml"
	TemplateStripReasoning = "strip_reasoning"
	TemplateThinkingPrompt = "thinking_prompt"
	TemplateTrim           = "trim"
)

// Config describes one simulated vLLM instance. Begin with DefaultConfig. Start replaces zero numbers, strings and durations by their
// defaults. It cannot do so for booleans, because false has a meaning.
type Config struct {
	// Role is "prefill", "decode" or "both", a label for /_sim/stats only. As in vLLM, the request decides.
	Role string `json:"role"`
	// Connector is the KV connector, "nixl" by default.
	Connector string `json:"connector"`
	// Model is the served model name that answers contain: the first of Models, or "sim" by default.
	Model string `json:"model"`
	// Models are the served names of the one model (--served-model-name).
	Models []string `json:"models"`
	// Adapters are the names of LoRA modules. Each answers under its own name and has its own KV.
	Adapters []string `json:"adapters"`
	// ModelPath is the model that the engine was started with, root in the list of models; "model" by default.
	ModelPath string `json:"model_path"`
	// Version is the version of vLLM, VLLM033 by default. The differences between VLLM033 and VLLM032 (release.go), the reported version and
	// the handshake follow from it.
	Version string `json:"version"`
	// EngineID is engine_id of --kv-transfer-config, the same for every incarnation. By default each incarnation draws one.
	EngineID string `json:"engine_id"`
	// BlockSize is the number of tokens in a block, 16 by default.
	BlockSize int `json:"block_size"`
	// Blocks is the KV capacity, 8192 by default.
	Blocks int `json:"blocks"`
	// MaxModelLen is 131072 by default and never more than the blocks can hold.
	MaxModelLen int `json:"max_model_len"`
	// MaxNumSeqs is --max-num-seqs: how many requests run at once. The default is 256, as in vLLM's server on most GPUs
	// (EngineArgs.get_batch_defaults, vllm/engine/arg_utils.py; 1024 with 70 GiB of memory or more).
	MaxNumSeqs int `json:"max_num_seqs"`
	// NoPrefixCaching is --no-enable-prefix-caching.
	NoPrefixCaching bool `json:"no_prefix_caching"`
	// Bidirectional is bidirectional_kv_xfer: decode answers with params, and prefill reads decode's blocks.
	Bidirectional bool `json:"bidirectional"`
	// RecomputeThreshold is kv_recompute_threshold, 64 by default: prefill computes fewer missing tokens itself.
	RecomputeThreshold int `json:"recompute_threshold"`
	// LoadFailurePolicy is kv_load_failure_policy. With "recompute" a request whose load fails never gets an answer, as in 0.32.
	LoadFailurePolicy string `json:"load_failure_policy"`
	// Lease is kv_lease_duration, which limits the pins of prefill's blocks, 30 s by default.
	Lease time.Duration `json:"lease"`
	// KVTTL is decoder_kv_blocks_ttl, 480 s by default.
	KVTTL time.Duration `json:"kv_ttl"`
	// TimeScale is how much faster than the wall clock all engine clocks run, 1 by default.
	TimeScale float64 `json:"time_scale"`
	// Params says which event of a stream carries the params. "usage" means the finish chunk in a stream without include_usage. The default
	// is "finish", as in stock vLLM since 0.33. Stock 0.32 is "never". Engine plug-ins use the other places.
	Params string `json:"params"`
	// OutputTokenIDs adds output_token_ids to the params of an answer, as an engine plug-in can.
	OutputTokenIDs bool `json:"output_token_ids"`
	// MessageParams adds the params to the message_delta of a Messages stream, as an engine plug-in can. Stock vLLM has them only in whole
	// answers. Params has no effect on this API.
	MessageParams bool `json:"message_params"`
	// MergeSystem stands for a template that takes a system message only at the beginning. vLLM then moves all system messages of a Messages
	// request into the first one.
	MergeSystem bool `json:"merge_system"`
	// Sampling is "canonical" (the output's text encodes to the sampled ids) or "noncanonical" (it never does).
	Sampling string `json:"sampling"`
	// Template is the chat template; see template.go.
	Template string `json:"template"`
	// PromptTokenIDs makes the engine use kv_transfer_params.prompt_token_ids; otherwise it ignores them.
	PromptTokenIDs bool `json:"prompt_token_ids"`
	// PromptTokensDetails is --enable-prompt-tokens-details.
	PromptTokensDetails bool `json:"prompt_tokens_details"`
	// RequestIDHeaders is --enable-request-id-headers.
	RequestIDHeaders bool `json:"request_id_headers"`
	// Render is --enable-scale-out.
	Render bool `json:"render"`
	// EmptyDeltas withholds the text of some tokens until the next token, like a tool or reasoning parser. With return_token_ids each such
	// token is an event with an empty delta; otherwise it has no event.
	EmptyDeltas bool `json:"empty_deltas"`
	// StepAhead simulates async scheduling: a step is under way when a request ends. The last sampled token then has KV too, if a block has
	// space for it, and remote_num_tokens counts it.
	StepAhead bool `json:"step_ahead"`
	// APIKey is --api-key.
	APIKey string `json:"api_key"`
	// Timing is how long work takes; zero is as fast as possible.
	Timing Timing `json:"timing"`
	// Slowness multiplies the times of Timing, 1 by default.
	Slowness float64 `json:"slowness"`
	// Host is the host of the side channel, 127.0.0.1 by default.
	Host string `json:"host"`
	// DPRanks is the number of data-parallel engines behind the one HTTP port, 1 by default.
	DPRanks int `json:"dp_ranks"`
	// LMCache is the configuration of ConnectorLMCache.
	LMCache LMCache `json:"lmcache"`
	// Storage is the configuration of ConnectorLMCacheStorage.
	Storage Storage `json:"storage"`
	// Mooncake is the configuration of ConnectorMooncake.
	Mooncake Mooncake `json:"mooncake"`
	// KVEvents is --kv-events-config.
	KVEvents KVEvents `json:"kv_events"`
	// Seed stands for the weights: equal seeds are equal models.
	Seed uint64 `json:"seed"`
}

// Timing is the duration of work, in engine time.
type Timing struct {
	// PrefillPerToken is the engine's time to compute a token of a prompt; all prompts share the engine.
	PrefillPerToken  time.Duration `json:"prefill_per_token"`
	TransferPerBlock time.Duration `json:"transfer_per_block"`
	InterToken       time.Duration `json:"inter_token"`
	Overhead         time.Duration `json:"overhead"`
}

// DefaultConfig returns the configuration of vLLM 0.33 with bidirectional transfer, which puts params on the finish chunk.
func DefaultConfig() Config {
	c := Config{Bidirectional: true, PromptTokenIDs: true}
	c.SetDefaults()
	return c
}

// SetDefaults replaces zero values by the defaults.
func (c *Config) SetDefaults() {
	fill(reflect.ValueOf(c).Elem(), reflect.ValueOf(Config{
		Role: "both", Connector: ConnectorNIXL, Model: "sim", ModelPath: "model", Version: VLLM033, MaxNumSeqs: 256, Slowness: 1, BlockSize: 16, Blocks: 8192,
		MaxModelLen: 131072, RecomputeThreshold: 64, LoadFailurePolicy: PolicyFail, Lease: 30 * time.Second, KVTTL: 480 * time.Second, TimeScale: 1,
		Params: ParamsFinish, Sampling: SamplingCanonical, Template: TemplateChatML, Host: "127.0.0.1", DPRanks: 1,
		Mooncake: Mooncake{AbortTimeout: 480 * time.Second}, Storage: Storage{ChunkSize: 64},
		LMCache: LMCache{Mode: LMCacheAsync, TP: 1, ChunkSize: 256, Tag: TagProxyNotif},
	}))
	if len(c.Models) > 0 {
		c.Model = c.Models[0]
	}
	c.MaxModelLen = min(c.MaxModelLen, c.Blocks*c.BlockSize)
}

// fill replaces zero members, also of structs in it, by those of defaults.
func fill(to, defaults reflect.Value) {
	for n := range to.NumField() {
		switch field := to.Field(n); {
		case field.Kind() == reflect.Struct:
			fill(field, defaults.Field(n))
		case field.IsZero():
			field.Set(defaults.Field(n))
		}
	}
}

// Validate returns what is wrong with the configuration, all of it.
func (c *Config) Validate() error {
	return errors.Join(
		oneOf("role", c.Role, "prefill", "decode", "both"),
		oneOf("connector", c.Connector, ConnectorNIXL, ConnectorLMCache, ConnectorLMCacheStorage, ConnectorMooncake),
		oneOf("load_failure_policy", c.LoadFailurePolicy, PolicyFail, PolicyRecompute),
		oneOf("params", c.Params, ParamsFinish, ParamsUsage, ParamsSeparate, ParamsNever),
		oneOf("sampling", c.Sampling, SamplingCanonical, SamplingNoncanonical),
		oneOf("template", c.Template, TemplateChatML, TemplateStripReasoning, TemplateThinkingPrompt, TemplateTrim),
		oneOf("lmcache.mode", c.LMCache.Mode, LMCacheAsync, LMCacheSync),
		oneOf("lmcache.tag", c.LMCache.Tag, TagProxyNotif, TagNixlProxyNotif, TagStoragePDStatus),
		notNegative(reflect.ValueOf(*c)),
		c.validateConnector(),
	)
}

// notNegative refuses numbers below zero, but for ports: -1 is a free one.
func notNegative(of reflect.Value) (err error) {
	for n := range of.NumField() {
		name, field := of.Type().Field(n).Tag.Get("json"), of.Field(n)
		switch {
		case field.Kind() == reflect.Struct:
			err = errors.Join(err, notNegative(field))
		case field.CanInt() && field.Int() < 0 && !strings.HasSuffix(name, "port"), field.CanFloat() && field.Float() < 0:
			err = errors.Join(err, fmt.Errorf("%s %v: must be positive", name, field))
		}
	}
	return err
}

func (c *Config) validateConnector() error {
	switch {
	case c.Connector == ConnectorLMCache && c.Role != "prefill" && c.Role != "decode":
		return fmt.Errorf("role %q: LMCache needs a sender, prefill, or a receiver, decode", c.Role)
	case c.Connector == ConnectorLMCache && c.DPRanks > 1:
		return fmt.Errorf("dp_ranks %d: LMCache is simulated with 1", c.DPRanks)
	case c.Connector == ConnectorLMCacheStorage && c.Storage.Folder == "":
		return errors.New("storage.folder: must be given")
	}
	return nil
}

func oneOf(key, value string, accepted ...string) error {
	if slices.Contains(accepted, value) {
		return nil
	}
	return fmt.Errorf("%s %q: must be one of %q", key, value, accepted)
}

// Served returns the names of the base model.
func (c *Config) Served() []string {
	if len(c.Models) > 0 {
		return c.Models
	}
	return []string{c.Model}
}

// Answered returns the model name in answers: an adapter's own name, and otherwise the first served name, whatever alias the request used
// (OpenAIServingModels.model_name, vllm/entrypoints/openai/models/serving.py).
func (c *Config) Answered(model string) string {
	if slices.Contains(c.Adapters, model) {
		return model
	}
	return c.Model
}
