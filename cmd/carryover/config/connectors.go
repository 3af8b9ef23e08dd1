package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"carryover/upstream"
	"carryover/upstream/connector/lmcache"
	"carryover/upstream/discovery"
)

// The values of ConnectorConfig.Name.
const (
	ConnectorNIXL           = "nixl"
	ConnectorMulti          = "multi"
	ConnectorOrchestrated   = "orchestrated"
	ConnectorLMCache        = "lmcache"
	ConnectorLMCacheStorage = "lmcache-storage"
	ConnectorMooncake       = "mooncake"
)

// Connectors returns the KV connectors, the default first.
func Connectors() []string {
	return []string{ConnectorNIXL, ConnectorMulti, ConnectorOrchestrated, ConnectorLMCache, ConnectorLMCacheStorage, ConnectorMooncake}
}

// The values of ConnectorConfig.OrchestratedForm.
const (
	OrchestratedParams   = "params"
	OrchestratedResponse = "response"
)

// ConnectorConfig says which KV connector the instances run.
type ConnectorConfig struct {
	Name             string
	OrchestratedForm string // the part of prefill's answer that decode gets
}

// ReusesKV reports whether prefill can read decode's KV by tickets. Other connectors leave only the instances' own prefix caches.
func (c ConnectorConfig) ReusesKV() bool { return c.Name == ConnectorNIXL || c.Name == ConnectorMulti }

// HandsBack reports whether a leg of the proxy's own can bring decode's KV into prefill's prefix cache. MultiConnector was never measured:
// its other children may take that leg for a normal request.
func (c ConnectorConfig) HandsBack() bool { return c.Name == ConnectorNIXL }

// MooncakeConfig has the settings of the Mooncake connector.
type MooncakeConfig struct {
	BootstrapPort int // port of instances that name none
}

// LMCacheConfig has the settings of the LMCache connector.
type LMCacheConfig struct {
	// DecoderRegistry is JSON: from a decode instance's URL to its receiver, in the form of disagg_spec without req_id.
	DecoderRegistry string
	Listen          string // host:port where prefill instances send their notifications (pd_proxy_host, pd_proxy_port)
	Notifications   int    // notifications for each prompt; 0 means one for each init port
	MaxPromptTokens int    // longer prompts go only to decode; 0 for no bound
	ChunkTokens     int    // chunk_size of the engines' LMCache, or a multiple of it
}

// Receivers returns the receivers in the registry by upstream.Instance.Authority; nil without a registry. The error joins all faults; there
// are none in a configuration that Load returned.
func (c *LMCacheConfig) Receivers() (map[string]lmcache.Receiver, error) {
	if c.DecoderRegistry == "" {
		return nil, nil
	}
	r := registryReader{validation: &validation{}}
	r.read(c.DecoderRegistry)
	return r.receivers, errors.Join(r.faults...)
}

// KVEventsConfig says where prefill instances publish KV events.
type KVEventsConfig struct {
	Port       int // port of each instance that names no address; 0 for none
	ReplayPort int // port of the replay endpoint; 0 for none
}

func connectorSettings(c *Config) []Setting {
	l := &c.LMCache
	return []Setting{
		row("connector.name", "connector", &c.Connector.Name, "KV connector of the instances", oneOf(Connectors()...)),
		row("connector.orchestrated_form", "orchestrated-form", &c.Connector.OrchestratedForm, "what decode gets of prefill's answer: its kv_transfer_params, or all of it as disagg_prefill_resp", oneOf(OrchestratedParams, OrchestratedResponse)),
		row("mooncake.bootstrap_port", "mooncake-bootstrap-port", &c.Mooncake.BootstrapPort, "VLLM_MOONCAKE_BOOTSTRAP_PORT of the prefill instances", within(1, 65535)),
		row("lmcache.decoder_registry", "decoder-registry", &l.DecoderRegistry, "JSON object: from the URL of a decode instance to its receiver_host, receiver_init_port and receiver_alloc_port; ports are lists with one per tensor-parallel rank of prefill"),
		row("lmcache.listen", "lmcache-listen", &l.Listen, "address where prefill instances report KV that has arrived: their pd_proxy_host and pd_proxy_port"),
		row("lmcache.notifications", "lmcache-notifications", &l.Notifications, "notifications per prompt, 1 for models with MLA; 0 for one per init port"),
		row("lmcache.max_prompt_tokens", "lmcache-max-prompt-tokens", &l.MaxPromptTokens, "max_num_batched_tokens of the prefill instances: longer prompts are never announced, and go to decode alone; 0 for no bound"),
		row("lmcache.chunk_tokens", "lmcache-chunk-tokens", &l.ChunkTokens, "chunk_size of the engines' LMCache: if decode begins the answer itself, prefill computes only whole chunks", within(1, 0)),
		row("kv_events.port", "kv-events-port", &c.KVEvents.Port, "port where prefill instances publish KV events, 0 for none", within(0, 65535)),
		row("kv_events.replay_port", "kv-events-replay-port", &c.KVEvents.ReplayPort, "port where prefill instances replay KV events, 0 for none", within(0, 65535)),
	}
}

// needs returns the setting or the connector that a setting needs for any effect, "" if none.
func needs(key string) string {
	section, _, _ := strings.Cut(key, ".")
	switch {
	case key == "connector.orchestrated_form":
		return "connector.name " + ConnectorOrchestrated
	case section == "mooncake", strings.HasSuffix(key, "].bootstrap_port"):
		return "connector.name " + ConnectorMooncake
	case section == "lmcache":
		return "connector.name " + ConnectorLMCache
	case section == "redis" && key != redisURLKey:
		return redisURLKey
	case strings.HasPrefix(key, "discovery.k8s_") && key != selectorKey, strings.HasSuffix(key, "_model_labels"):
		return selectorKey
	}
	return ""
}

// The settings that others need.
const (
	redisURLKey = "redis.url"
	selectorKey = "discovery.k8s_label_selector"
)

func refuseUseless(v *validation, c *Config, rows []Setting) {
	has := []string{""}
	for _, name := range Connectors() {
		if name == c.Connector.Name || !slices.Contains(Connectors(), c.Connector.Name) { // validateRow refuses an unknown name
			has = append(has, "connector.name "+name)
		}
	}
	if c.Redis.URL != "" {
		has = append(has, redisURLKey)
	}
	if c.Discovery.K8sLabelSelector != "" {
		has = append(has, selectorKey)
	}
	refuse := func(s Setting, usual string) {
		if value, need := FormatValue(s.To), needs(s.Key); value != usual && !slices.Contains(has, need) {
			if len(value) > 80 {
				value = value[:80] + "…"
			}
			v.fault(s.Key, value, need+" beside it")
		}
	}
	defaults := Default()
	for i, s := range Settings(&defaults) {
		refuse(rows[i], FormatValue(s.To))
	}
	for i := range c.Prefill {
		for _, s := range InstanceSettings(RolePrefill, i, &c.Prefill[i]) {
			if needs(s.Key) != "" {
				refuse(s, "0")
			}
		}
	}
}

func validateLMCache(v *validation, c *Config) {
	l := &c.LMCache
	if c.Connector.Name != ConnectorLMCache {
		return
	}
	if !isListenAddress(l.Listen) {
		v.fault("lmcache.listen", l.Listen, wantListenAddress)
	}
	if l.DecoderRegistry == "" {
		v.fault("connector.name", ConnectorLMCache, "lmcache.decoder_registry beside it: where decode receives")
		return
	}
	r, faults := registryReader{validation: v}, len(v.faults)
	if r.read(l.DecoderRegistry); len(v.faults) == faults {
		validateReceivers(v, c, r.receivers)
	}
}

// validateReceivers refuses two decode instances with one receiver: KV could go to the instance without the turn, and would still be
// announced.
func validateReceivers(v *validation, c *Config, receivers map[string]lmcache.Receiver) {
	taken := map[string]int{}
	for i, inst := range c.Decode {
		if _, err := upstream.ParseBaseURL(inst.BaseURL); err != nil {
			continue // validateRole has reported it
		}
		to, known := receivers[inst.Authority()]
		if !known {
			v.fault(instanceKey(RoleDecode, i)+"url", inst.BaseURL, "an entry in lmcache.decoder_registry")
			continue
		}
		for _, port := range to.InitPorts {
			address := net.JoinHostPort(to.Host, strconv.Itoa(port))
			if first, shared := taken[address]; shared && first != i {
				v.fault(instanceKey(RoleDecode, i)+"url", inst.BaseURL, fmt.Sprintf("a receiver of its own (lmcache.decoder_registry), decode[%d] is reached at %s too", first, address))
				break
			}
			taken[address] = i
		}
	}
}

// validatePublishers reports whether an instance names where it publishes KV events.
func validatePublishers(v *validation, c *Config) (named bool) {
	for _, role := range []string{RolePrefill, RoleDecode} {
		for i, inst := range *c.Instances(role) {
			if inst.KVEvents == "" {
				continue
			}
			named = true
			if !discovery.IsPublisher(inst.KVEvents) {
				v.fault(instanceKey(role, i)+"kv_events", inst.KVEvents, "tcp://host:port")
			}
		}
	}
	return named
}

func validateKVEvents(v *validation, c *Config) {
	named := validatePublishers(v, c) || c.Discovery.File != "" // instances of the file may name their own
	if c.KVEvents.ReplayPort > 0 && c.KVEvents.Port == 0 && !named {
		v.fault("kv_events.replay_port", strconv.Itoa(c.KVEvents.ReplayPort), "kv_events.port beside it")
	}
}

const wantListenAddress = "host:port, with a fixed port from 1 to 65535"

// isListenAddress accepts an address that others can dial. An empty host, as in ":7500", means all addresses.
func isListenAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && (host == "" || upstream.IsHost(host)) && upstream.IsPort(port)
}
