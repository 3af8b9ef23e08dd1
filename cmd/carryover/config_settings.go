package main

import (
	"fmt"
	"slices"
	"strings"

	"carryover/server"
)

// setting is one row of the table that describes Config. The table is the only place with the names and the help text of a value. It
// lists the flag and the file key; the environment variable follows from the flag.
type setting struct {
	key   string   // section.key of the file
	flag  string   // without dashes; empty for secrets, which a process list would show, and for values that a flag cannot express
	env   string   // only if there is no flag to derive it from
	to    any      // pointer to the field of Config
	oneOf []string // closed set for a text, for each item of a list, for each value of a map; nil if open
	min   int      // bounds of a whole number; max 0 means none
	max   int
	live  bool // a reload can change it
	help  string
}

// variable returns the environment variable of the setting, empty if it has none.
func (s setting) variable() string {
	if s.flag == "" {
		return s.env
	}
	return "CARRYOVER_" + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))
}

func (s setting) section() string {
	section, _, _ := strings.Cut(s.key, ".")
	return section
}

// name returns the last part of the key.
func (s setting) name() string { return s.key[strings.LastIndexByte(s.key, '.')+1:] }

// usage returns the help text, with the allowed values if they are a closed set.
func (s setting) usage() string {
	if s.oneOf == nil {
		return s.help
	}
	return s.help + ": " + strings.Join(s.oneOf, ", ")
}

// bounds returns a phrase for the accepted whole numbers.
func (s setting) bounds() string {
	if s.max > 0 {
		return fmt.Sprintf("a whole number from %d to %d", s.min, s.max)
	}
	return fmt.Sprintf("a whole number, at least %d", s.min)
}

// settings returns the table, in the order in which it is shown, with pointers into c.
func settings(c *Config) []setting {
	return slices.Concat(engineSettings(c), connectorSettings(c), routingSettings(c), discoverySettings(c), reuseSettings(c), redisSettings(c), boundSettings(c), clientSettings(c))
}

func engineSettings(c *Config) []setting {
	return []setting{
		{key: "listen.host", flag: "host", to: &c.Listen.Host, help: "address to listen on"},
		{key: "listen.port", flag: "port", to: &c.Listen.Port, max: 65535, help: "port to listen on, 0 for a free one"},
		{key: "admin.listen", flag: "admin-listen", to: &c.Admin.Listen, help: "address of the listener for operators, off for none; one that is not loopback needs a token"},
		{key: "admin.token_file", flag: "admin-token-file", to: &c.Admin.TokenFile, help: "file with the bearer token that the admin listener demands"},
		{key: "admin.token", env: "CARRYOVER_ADMIN_TOKEN", to: &c.Admin.Token, help: "the token itself, at least 16 bytes"},
		{key: "prefill", flag: "prefill", to: &c.Prefill, live: true, help: "prefill instance; repeat for more"},
		{key: "decode", flag: "decode", to: &c.Decode, live: true, help: "decode instance; repeat for more"},
		{key: "kv.host", flag: "kv-host", to: &c.KV.Host, help: "remote_host sent to engines: auto corrects unusable ones, pin always sets the instance's, else a host"},
		{key: "kv.client_params", flag: "client-kv-params", to: &c.KV.ClientParams, oneOf: []string{"reject", "strip"}, help: "what becomes of kv_transfer_params in a client's request"},
		{key: "kv.expose_params", flag: "expose-kv-params", to: &c.KV.ExposeParams, help: "leave kv_transfer_params in what clients see"},
		{key: "kv.decode_stream", flag: "decode-stream", to: &c.KV.DecodeStream, oneOf: []string{"stream", decodeBuffered}, help: "buffered: make streams of whole answers, for engines that omit kv_transfer_params from streams"},
	}
}

// policies returns the policies that pick an instance, the default first.
func policies() []string {
	return []string{"auto", "affinity", "prefix", "least_loaded", "power_of_two", "round_robin"}
}

func routingSettings(c *Config) []setting {
	r := &c.Routing
	failures := []string{string(server.PrefillRetryOther), string(server.PrefillDecodeOnly), string(server.PrefillError)}
	return []setting{
		{key: "routing.prefill", flag: "routing-prefill", to: &r.Prefill, live: true, oneOf: policies(), help: "how the prefill instance is picked"},
		{key: "routing.decode", flag: "routing-decode", to: &r.Decode, live: true, oneOf: policies(), help: "how the decode instance is picked"},
		{key: "routing.disagg_threshold", flag: "disagg-threshold", to: &r.DisaggThreshold, live: true, help: "turns with fewer uncached prompt tokens go to decode alone, 0 for none"},
		{key: "routing.prefill_failure", flag: "prefill-failure", to: &r.PrefillFailure, live: true, oneOf: failures, help: "what becomes of a turn whose prefill failed"},
		{key: "routing.prefiller_allow", flag: "prefiller-allow", to: &r.PrefillerAllow, help: "prefill instances that x-prefiller-host-port may name, as host:port, CIDR:port or *.domain:from-to; in place of llm-d's sidecar"},
	}
}

func discoverySettings(c *Config) []setting {
	d := &c.Discovery
	return []setting{
		{key: "discovery.registration", flag: "discovery-registration", to: &d.Registration, help: "let instances be added at the admin listener"},
		{key: "discovery.file", flag: "discovery-file", to: &d.File, help: "file with lists of prefill and decode instances, JSON or YAML, which is watched"},
		{key: "discovery.prefill_dns", flag: "prefill-dns", to: &d.PrefillDNS, help: "names of prefill instances: http://name:port, an instance per address; srv://_service._tcp.name"},
		{key: "discovery.decode_dns", flag: "decode-dns", to: &d.DecodeDNS, help: "names of decode instances, likewise"},
		{key: "discovery.dns_interval", flag: "dns-interval", to: &d.DNSInterval, help: "between two look-ups of a name"},
		{key: "discovery.k8s_label_selector", flag: "k8s-label-selector", to: &d.K8sLabelSelector, help: "which objects of Kubernetes are instances, such as app in (prefill,decode)"},
		{key: "discovery.k8s_namespace", flag: "k8s-namespace", to: &d.K8sNamespace, help: "where they are (default: the namespace of the pod)"},
		{key: "discovery.k8s_resource", flag: "k8s-resource", to: &d.K8sResource, oneOf: []string{k8sPods, "endpointslices"}, help: "what they are"},
		{key: "discovery.k8s_port", flag: "k8s-port", to: &d.K8sPort, help: "number or name of their port"},
		{key: "discovery.k8s_model_label", flag: "k8s-model-label", to: &d.K8sModelLabel, help: "label that tells their role"},
		{key: "discovery.prefill_model_labels", flag: "prefill-model-labels", to: &d.PrefillModelLabels, help: "its values for prefill instances"},
		{key: "discovery.decode_model_labels", flag: "decode-model-labels", to: &d.DecodeModelLabels, help: "its values for decode instances"},
		{key: "discovery.zmq_listen", flag: "zmq-discovery-listen", to: &d.ZMQListen, help: "host:port where engines with MoRI-IO or P2P-NCCL register over ZMQ"},
		{key: "discovery.zmq_allow", flag: "zmq-discovery-allow", to: &d.ZMQAllow, help: "engines that may register over ZMQ, by their HTTP address, as host:port, CIDR:port or *.domain:from-to; their KV address must be at a host of these (default: all)"},
	}
}

func reuseSettings(c *Config) []setting {
	modes := []string{"auto", "history"}
	backs := []string{string(server.HandBackIdle), string(server.HandBackNow), string(server.HandBackOff)}
	return []setting{
		{key: "conversation.sources", flag: "conversation-sources", to: &c.Conversation.Sources, oneOf: conversationSources(), help: "where a request names its conversation, first match wins"},
		{key: "conversation.tenant_header", flag: "tenant-header", to: &c.Conversation.TenantHeader, help: "request header that names the tenant, which a gateway must replace, not append (default: the credential does)"},
		{key: "conversation.tenant_salt", flag: "tenant-salt", to: &c.Conversation.TenantSalt, help: "also isolate tenants in the engines by a cache_salt"},
		{key: "conversation.secret_file", flag: "secret-file", to: &c.Conversation.SecretFile, help: "file with the secret that replicas share (default: a random one per start)"},
		{key: "conversation.secret", env: "CARRYOVER_SECRET", to: &c.Conversation.Secret, help: "the secret itself, at least 16 bytes"},
		{key: "proof.mode", flag: "proof", to: &c.Proof.Mode, oneOf: modes, help: "what proves that a ticket may be used: auto, its tokens; history, equal messages, which is weaker"},
		{key: "proof.models", to: &c.Proof.Models, oneOf: modes, help: "proof.mode by served model name"},
		{key: "proof.reuse_min_tokens", flag: "reuse-min-tokens", to: &c.Proof.ReuseMinTokens, min: 1, help: "fewest tokens worth a hand-over from decode to prefill"},
		{key: "proof.reuse_min_share", flag: "reuse-min-share", to: &c.Proof.ReuseMinShare, help: "smallest share of a ticket worth using it up, 0 to 1"},
		{key: "proof.reuse_hybrid", flag: "reuse-hybrid", to: &c.Proof.ReuseHybrid, help: "use tickets of several block groups (hybrid models) too, whole: where a load of one group fails, vLLM 0.32 answers wrongly"},
		{key: "proof.reuse_trial_timeout", flag: "reuse-trial-timeout", to: &c.Proof.ReuseTrialTimeout, help: "longest wait for prefill's first answer to a ticket, at most 25s"},
		{key: "proof.render", flag: "render", to: &c.Proof.Render, help: "address of a server that renders the prompts of /v1/messages and /v1/responses, such as vllm launch render (default: the prefill instances, with --enable-scale-out)"},
		{key: "release.mode", flag: "release", to: &c.Release.Mode, oneOf: []string{"on", "off"}, help: "free the blocks of tickets that nobody will use"},
		{key: "release.backlog", flag: "release-backlog", to: &c.Release.Backlog, min: 0, help: "more unused tickets of one decode instance are released at once"},
		{key: "release.branch_keep", flag: "branch-keep", to: &c.Release.BranchKeep, help: "how long a branch lives after the conversation has left it"},
		{key: "release.pinned_share", flag: "pinned-share", to: &c.Release.PinnedShare, help: "share of a decode instance's KV cache that tickets may pin before the oldest are released, 0 for no bound"},
		{key: "hand_back.mode", flag: "hand-back", to: &c.HandBack.Mode, oneOf: backs, help: "when prefill reads what decode holds of a turn into its prefix cache, which frees decode (idle: once no turn has used it for a while; now: after each turn)"},
		{key: "hand_back.after", flag: "hand-back-after", to: &c.HandBack.After, help: "how long decode's KV waits for a turn before it is handed back (idle); half of the TTL where that is no longer than the default"},
		{key: "hand_back.memory", flag: "hand-back-memory", to: &c.HandBack.Memory, help: "memory for the token ids of what may be handed back, 4 bytes each, at least 1MiB; what finds no room is not handed back"},
		{key: "store.ttl", flag: "ttl", to: &c.Store.TTL, help: "longest time that a ticket can be used"},
		{key: "store.decoder_kv_ttl", flag: "decoder-kv-ttl", to: &c.Store.DecoderKVTTL, help: "decoder_kv_blocks_ttl of the decode instances, above 30s"},
		{key: "store.max_tickets", flag: "store-max-tickets", to: &c.Store.MaxTickets, min: 1, help: "most tickets held in memory"},
		{key: "store.max_bytes", flag: "store-max-bytes", to: &c.Store.MaxBytes, help: "most memory for tickets"},
	}
}

func redisSettings(c *Config) []setting {
	r := &c.Redis
	return []setting{
		{key: "redis.url", flag: "redis-url", to: &r.URL, help: "Redis through which replicas share tickets: redis, rediss (TLS), unix, redis+sentinel, redis+cluster"},
		{key: "redis.password_file", flag: "redis-password-file", to: &r.PasswordFile, help: "file with the password of Redis, instead of one in the URL"},
		{key: "redis.sentinel_username", flag: "redis-sentinel-username", to: &r.SentinelUsername, help: "user name at the Sentinels"},
		{key: "redis.sentinel_password_file", flag: "redis-sentinel-password-file", to: &r.SentinelPasswordFile, help: "file with the password of the Sentinels"},
		{key: "redis.ca_file", flag: "redis-ca-file", to: &r.CAFile, help: "file with the certificates that Redis is checked against (default: the system's)"},
		{key: "redis.cert_file", flag: "redis-cert-file", to: &r.CertFile, help: "file with the client certificate for Redis"},
		{key: "redis.key_file", flag: "redis-key-file", to: &r.KeyFile, help: "file with its key"},
		{key: "redis.prefix", flag: "redis-prefix", to: &r.Prefix, help: "beginning of every key in Redis"},
		{key: "redis.seal_key_file", flag: "redis-seal-key-file", to: &r.SealKeyFile, help: "file with the key that encrypts tickets in Redis (default: they are authenticated only)"},
		{key: "redis.max_value_bytes", flag: "redis-max-value-bytes", to: &r.MaxValueBytes, help: "largest ticket that is shared, at most 1MiB; larger ones stay in the replica that made them"},
		{key: "redis.fencing", flag: "redis-fencing", to: &r.Fencing, oneOf: []string{"on", fencingOff}, help: "refuse tickets of another master; off only for a single Redis without replicas that never restarts from a file"},
		{key: "redis.insecure", flag: "redis-insecure", to: &r.Insecure, help: "accept a Redis on the network without TLS or without a password"},
		{key: "redis.required", flag: "redis-required", to: &r.Required, help: "fail /readyz unless Redis is up"},
	}
}

func boundSettings(c *Config) []setting {
	l, t := &c.Limits, &c.Timeouts
	return []setting{
		{key: "limits.max_body_bytes", flag: "max-body-bytes", to: &l.MaxBodyBytes, help: "largest request body"},
		{key: "limits.max_inflight_bytes", flag: "max-inflight-bytes", to: &l.MaxInflightBytes, help: "most memory for request bodies in flight, a quarter of it for one client"},
		{key: "limits.max_streams", flag: "max-streams", to: &l.MaxStreams, help: "most turns at once, 0 to derive it from the open-file limit"},
		{key: "limits.max_header_bytes", flag: "max-header-bytes", to: &l.MaxHeaderBytes, help: "largest request header"},
		{key: "limits.max_per_instance", flag: "max-per-instance", to: &l.MaxPerInstance, live: true, help: "most turns that an instance gets at once, 0 for no limit"},
		{key: "limits.max_per_tenant", flag: "max-per-tenant", to: &l.MaxPerTenant, live: true, help: "most turns of one tenant at once, 0 for no limit"},
		{key: "limits.max_queue", flag: "max-queue", to: &l.MaxQueue, live: true, help: "most turns that wait for a place, in fair shares among tenants"},
		{key: "limits.queue_timeout", flag: "queue-timeout", to: &l.QueueTimeout, live: true, help: "longest wait for a place"},
		{key: "limits.address_share", flag: "address-share", to: &l.AddressShare, help: "share of the clients' connections that one address may have, 1 for all"},
		{key: "limits.trusted_proxies", flag: "trusted-proxies", to: &l.TrustedProxies, help: "addresses and networks of proxies in front, which may have all connections"},
		{key: "timeouts.dial", flag: "dial-timeout", to: &t.Dial, help: "connecting to an instance, below the hand-over budget"},
		{key: "timeouts.prefill", flag: "prefill-timeout", to: &t.Prefill, help: "whole prefill leg"},
		{key: "timeouts.handover_budget", flag: "handover-budget", to: &t.HandoverBudget, help: "from prefill's answer to decode's headers, below the engine's 30s lease"},
		{key: "timeouts.first_byte", flag: "first-byte-timeout", to: &t.FirstByte, help: "first byte of decode's answer"},
		{key: "timeouts.idle", flag: "idle-timeout", to: &t.Idle, help: "between two reads of a stream"},
		{key: "timeouts.store", flag: "store-timeout", to: &t.Store, help: "one operation of the ticket store"},
		{key: "timeouts.tokenize", flag: "tokenize-timeout", to: &t.Tokenize, help: "tokenising one prompt, and reading an instance's metrics"},
		{key: "timeouts.shutdown_grace", flag: "shutdown-grace", to: &t.ShutdownGrace, help: "for turns in flight after SIGTERM"},
		{key: "timeouts.client_write", flag: "client-write-timeout", to: &t.ClientWrite, help: "one write to a client"},
		{key: "timeouts.client_header", flag: "client-header-timeout", to: &t.ClientHeader, help: "reading a request's header"},
		{key: "timeouts.client_body", flag: "client-body-timeout", to: &t.ClientBody, help: "reading a request's body"},
	}
}

func clientSettings(c *Config) []setting {
	return []setting{
		{key: "auth.forward_authorization", flag: "forward-authorization", to: &c.Auth.ForwardAuthorization, help: "send the client's credential on to the engines"},
		{key: "upstream.client", flag: "upstream-client", to: &c.Upstream.Client, oneOf: []string{"own", clientStd}, help: "HTTP client for the engines; std is that of Go's library"},
		{key: "auth.upstream_key", env: "OPENAI_API_KEY", to: &c.Auth.UpstreamKey, help: "bearer token for the engines"},
		{key: "log.format", flag: "log-format", to: &c.Log.Format, oneOf: []string{logAuto, logText, logJSON, logConsole}, help: "log format; auto is console on a terminal, else text"},
		{key: "log.clients", flag: "log-clients", to: &c.Log.Clients, oneOf: []string{string(server.ClientsClear), string(server.ClientsHash), string(server.ClientsOff)}, help: "how a line names the client: clear has its address and a keyed hash of its tenant, hash hashes of both"},
		{key: "log.level", flag: "log-level", to: &c.Log.Level, live: true, oneOf: []string{"debug", "info", "warn", "error"}, help: "least severe record that is logged"},
	}
}

// instanceSettings describes instance number i of a role. Only the file can set its fields one by one.
func instanceSettings(role string, i int, c *InstanceConfig) []setting {
	at := instanceKey(role, i)
	rows := []setting{
		{key: at + "url", to: &c.URL},
		{key: at + "name", to: &c.Name},
		{key: at + "kv_host", to: &c.KVHost},
		{key: at + "weight", to: &c.Weight, min: 1, max: maxWeight},
		{key: at + "ranks", to: &c.Ranks, max: maxRanks},
		{key: at + "kv_events", to: &c.KVEvents},
	}
	if role == roleDecode {
		rows = append(rows, setting{key: at + "kv_ttl", to: &c.KVTTL})
	} else {
		rows = append(rows,
			setting{key: at + "bootstrap_port", to: &c.BootstrapPort, max: 65535},
			setting{key: at + "notifications", to: &c.Notifications, min: 0, max: 1024})
	}
	return rows
}
