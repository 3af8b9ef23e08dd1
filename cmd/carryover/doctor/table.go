package doctor

import "slices"

// diagnosis has the texts of a code: what a passed check means, why a problem matters, and its fix. Details replace names in braces.
type diagnosis struct {
	code            string
	severity        severity
	holds, why, fix string
}

// The codes of findings, which scripts may depend on.
const (
	codeNotFinished   = "not_finished"
	codeTTLOrder      = "ttl_order"
	codeClock         = "clock"
	codeHandBack      = "hand_back"
	codeDiscovery     = "discovery_failed"
	codeNoInstance    = "no_instance"
	codeUnreachable   = "unreachable"
	codeUnhealthy     = "unhealthy"
	codeKeyRefused    = "key_refused"
	codeNoModels      = "no_models"
	codeVersion       = "version_too_old"
	codeStartUnknown  = "start_unknown"
	codeStartChanges  = "start_changes"
	codeIDsIgnored    = "ids_ignored"
	codeIDsUnproven   = "ids_unproven"
	codeRenderOff     = "render_off"
	codeRenderFails   = "render_fails"
	codeNoCommonModel = "no_common_model"
	codeModelPaths    = "model_paths_differ"
	codeVersions      = "versions_differ"
	codeBlockSizes    = "block_sizes_differ"
	codeLengths       = "context_lengths_differ"
	codeTurnFailed    = "turn_failed"
	codeNoHandover    = "no_handover"
	codeNotAnnounced  = "kv_not_announced"
	codeHandoverFails = "handover_not_loaded"
	codeOtherIDs      = "other_ids"
	codeNoParams      = "decode_keeps_nothing"
	codeStreamParams  = "plug_in_missing"
	codeNoIDs         = "decode_tells_no_ids"
	codeNoTicket      = "no_ticket"
	codeUnanswered    = "ticket_not_answered"
	codeTicketFails   = "ticket_not_loaded"
	codeNothingLoaded = "nothing_loaded"
	codeTokenize      = "tokenize_fails"
	codeParity        = "tokenize_differs"
	codeRewritten     = "history_rewritten"
	codeMiss          = "nothing_reused"
	codeNotReleased   = "not_released"
	codeRedisDown     = "redis_unreachable"
	codeRedisForbids  = "redis_forbids"
	codeRedisClock    = "redis_clock"
	codeRedisEviction = "redis_eviction"
	codeFrontDown     = "front_unreachable"
	codeFrontForeign  = "front_hides_headers"
	codeFrontID       = "front_drops_conversation_id"
	codeFrontBuffers  = "front_buffers"
)

func rowOf(code string) int {
	return slices.IndexFunc(diagnoses, func(d diagnosis) bool { return d.code == code })
}

// diagnoses has one row per code. It is the order of findings within a place.
var diagnoses = []diagnosis{ //nolint:gochecknoglobals // a constant
	{codeNotFinished, severityError, "",
		"what was not looked at may be what is wrong",
		"carryover doctor --timeout 10m"},
	{codeTTLOrder, severityWarn, "tickets end before decode's blocks",
		"a ticket ends 30s before decode may free its blocks (60s where decode does not tell when), whatever store.ttl says",
		"--ttl {ttl}, or --decoder-kv-ttl if decode was started with a longer decoder_kv_blocks_ttl"},
	{codeDiscovery, severityError, "a list of instances was found",
		"without a list of instances there is nothing to send turns to",
		"carryover check-config says where instances come from"},
	{codeNoInstance, severityError, "there are instances of both roles",
		"a turn needs an instance of each role",
		"--prefill URL and --decode URL, or see that discovery finds them"},

	{codeUnreachable, severityError, "it answers",
		"turns go to the other instances, or nowhere; decode's tickets are lost with it",
		"start it, or correct its address: curl -sf {url}/health. vLLM 0.33 does not start with a nixl below 1.5.0"},
	{codeUnhealthy, severityError, "/health is good",
		"an engine that is dead behind its API server answers no request",
		"look into its log and start it again; curl -i {url}/health"},
	{codeKeyRefused, severityError, "our key is let in",
		"probes and turns are refused, so that nothing is proven",
		"OPENAI_API_KEY=KEY carryover …, the key that the engines have (--api-key)"},
	{codeNoModels, severityError, "it lists its models",
		"turns are sent only where their model is served",
		"curl -s {url}/v1/models; {url} has to be a vLLM server"},
	{codeVersion, severityError, "vLLM is new enough to take token ids",
		"vLLM before 0.28 takes no token ids for chats, so that nothing can be proven",
		"pip install -U 'vllm>=0.28' on both roles"},
	{codeStartUnknown, severityError, "it tells its start",
		"what is known of an engine belongs to one start of it, so that without process_start_time_seconds no ticket is made or used",
		"vllm serve … --api-server-count 1; with data-parallel ranks one server for each (--data-parallel-external-lb)"},
	{codeStartChanges, severityError, "its start stays the same",
		"tickets of one process are no tickets of the other",
		"give each vLLM server an address of its own instead of one that a load balancer shares; if it restarts again and again, look into its log"},
	{codeClock, severityWarn, "clocks agree",
		"replicas compare the ends of tickets by their clocks: where these differ by more than 2s a ticket of one looks expired to another, or not yet made",
		"chronyc makestep, or systemctl restart systemd-timesyncd, on this host and that of {name}"},
	{codeHandBack, severityWarn, "prefill keeps what is handed back to it",
		"a ticket that no turn uses is handed back to prefill, which has to keep the KV until the next turn",
		"--enable-prefix-caching on {name}"},
	{codeIDsIgnored, severityError, "it computes the ids that it is sent, so that tickets can be proven",
		"it renders chats by itself, so that what was proven is not what is computed; nothing of it is reused",
		"pip install -U 'vllm>=0.28' there"},
	{codeIDsUnproven, severityError, "its probe was answered",
		"an engine that has not shown that it uses forwarded ids leaves no tickets, and gets none",
		"look into its log for the request with prompt_token_ids [1, \"x\"]; carryover doctor --verbose"},
	{codeRenderOff, severityOK, "prompts of /v1/messages and /v1/responses are rendered, so that turns of agents are proven",
		"only a render endpoint tells the ids of such prompts, and without them nothing is proven; chats need none",
		"vllm serve … --enable-scale-out on {name}, which opens vLLM's scale-out endpoints to whoever reaches it; " +
			"or --render URL of one vllm launch render, which needs no GPU. Each turn of an agent costs one request more then, before prefill"},
	{codeRenderFails, severityError, "the render endpoint answers",
		"turns of agents reuse nothing",
		"look into the log of the server that renders for /v1/messages/render; carryover doctor --verbose"},

	{codeNoCommonModel, severityError, "both serve one model",
		"a turn needs one model on both, and here none has",
		"vllm serve … --served-model-name NAME, the same on both"},
	{codeModelPaths, severityError, "both were started with one model path",
		"the path is part of NIXL's compatibility hash: another one, be it of the same weights, and decode refuses every hand-over",
		"start both with the same path: vllm serve {root} on {decode} too"},
	{codeVersions, severityError, "both run one version of vLLM",
		"the version is part of NIXL's compatibility hash, so that every hand-over is refused",
		"the same image, or pip install vllm=={version}, for both"},
	{codeLengths, severityWarn, "both have one context length",
		"decode computes alone what is too long for prefill, and prefill computes what decode may refuse",
		"vllm serve … --max-model-len {length} on both"},
	{codeBlockSizes, severityWarn, "both have one block size",
		"a ticket is cut to whole blocks only where prefill's have the size of decode's; and NIXL may refuse to read blocks of another size",
		"vllm serve … --block-size {size} on both"},
	{codeTurnFailed, severityError, "turns are answered",
		"what fails here fails for clients",
		"carryover doctor --verbose, and the logs of {prefill} and {decode}"},
	{codeNoHandover, severityError, "prefill hands over to decode",
		"prefill's answer has no kv_transfer_params, so that decode computes every prompt again",
		"vllm serve … --kv-transfer-config {config} on {prefill}"},
	{codeNotAnnounced, severityError, "prefill announces its KV",
		"decode would read KV that has not come, so that the turn fails or decode computes it by itself",
		"pd_proxy_host and pd_proxy_port of prefill's LMCache are where --lmcache-listen is; its receivers are those of --decoder-registry; " +
			"restart prefill if decode was restarted; --lmcache-max-prompt-tokens is prefill's --max-num-batched-tokens"},
	{codeHandoverFails, severityError, "decode loads what prefill hands over",
		"decode could not read prefill's KV, so that the turn fails or is computed again",
		"VLLM_NIXL_SIDE_CHANNEL_HOST of {prefill} is an address that {decode} reaches, its port 5600 + rank and UCX's are open, " +
			"and both have the same version, model path and KV layout; the log of {decode} says which"},
	{codeOtherIDs, severityError, "prefill computes the ids that it is sent",
		"wrong KV is in its prefix cache, which spoils answers of others too",
		"restart {prefill} now, and leave it out if it does so again"},
	{codeNoParams, severityError, "decode says what it keeps",
		"decode answers without kv_transfer_params, streaming or not, so that there is nothing to reuse",
		"vllm serve … --kv-transfer-config {config} on {decode} (vLLM 0.21 or newer)"},
	{codeStreamParams, severityError, "streams end with decode's params",
		"{why}; and decode keeps their blocks for its whole TTL for nothing",
		"on {decode}: {fix}"},
	{codeNoIDs, severityError, "decode tells the ids that it has sampled",
		"without them nothing shows what its blocks hold",
		"pip install ./scripts/vllm in the environment of {decode}, or a vLLM that knows return_token_ids (0.28 or newer)"},
	{codeNoTicket, severityError, "answers leave tickets",
		"without a ticket the next turn reuses nothing",
		"docs/reference.md has the reason's meaning; carryover doctor --verbose"},
	{codeUnanswered, severityError, "prefill answers tickets",
		"each trial of the pair costs a client {limit}, and nothing is reused or handed back",
		"bidirectional_kv_xfer true on {prefill}: --kv-transfer-config {config}. If it has that, its kv_load_failure_policy is recompute, " +
			"with which vLLM 0.32 never answers what it can't load: set fail, and see that {prefill} reaches decode's VLLM_NIXL_SIDE_CHANNEL_HOST"},
	{codeTicketFails, severityError, "prefill loads what tickets name",
		"prefill answers 5xx to tickets, and each such turn is computed after all",
		"VLLM_NIXL_SIDE_CHANNEL_HOST of {decode} is an address that {prefill} reaches, both have the same version and model path, " +
			"and decode's decoder_kv_blocks_ttl is not below --decoder-kv-ttl; the log of {prefill} says which"},
	{codeNothingLoaded, severityWarn, "prefill loads decode's KV",
		"the ticket was answered, and prefill computed what it names",
		"a smaller kv_recompute_threshold (64 by default) in kv_connector_extra_config of {prefill}, bidirectional_kv_xfer true there, " +
			"and kv_load_failure_policy fail; {prefill} reaches decode's VLLM_NIXL_SIDE_CHANNEL_HOST"},
	{codeTokenize, severityError, "/tokenize answers",
		"without the ids of a prompt nothing is proven",
		"curl -s {url}/tokenize -d '{\"model\": \"{model}\", \"prompt\": \"x\"}' -H 'Content-Type: application/json'"},
	{codeParity, severityError, "/tokenize gives what prefill renders",
		"requests of that shape reuse nothing for as long as this start of prefill lives",
		"the same --chat-template and tokenizer arguments for all that {prefill} serves; --enable-scale-out on it, whose render endpoint is used then"},
	{codeRewritten, severityWarn, "the next turn continues the one before",
		"the chat template, or the reasoning parser, changes what was generated when it comes back as history",
		"a --chat-template that keeps reasoning and white space of earlier turns"},
	{codeMiss, severityError, "the second turn reuses the first",
		"a client's next turn computes its whole prompt",
		"docs/reference.md has the reason's meaning; carryover doctor --verbose"},
	{codeNotReleased, severityWarn, "what the probe left was released",
		"decode keeps the blocks of tickets that no turn uses for its whole TTL",
		"bidirectional_kv_xfer true on {prefill}, and a side channel of {decode} that it reaches"},

	{codeRedisDown, severityError, "Redis answers in time",
		"tickets stay in the replica that made them, and turns that reach another one compute their prompt",
		"redis-cli -u URL --latency from this host; a turn grants {limit} (--store-timeout)"},
	{codeRedisForbids, severityError, "Redis lets us do what is needed",
		"serve refuses to start",
		"the ACL of docs/replicas.md: ACL SETUSER carryover … as the error says, then carryover doctor again"},
	{codeRedisClock, severityWarn, "its clock is ours",
		"tickets that other replicas made may look expired, or as if made in the future",
		"chronyc makestep, or systemctl restart systemd-timesyncd, on this host and on that of Redis"},
	{codeRedisEviction, severityWarn, "it drops what ends soonest",
		"a full Redis drops other entries than those that end soonest",
		"redis-cli CONFIG SET maxmemory-policy volatile-ttl, and in redis.conf"},

	{codeFrontDown, severityError, "turns get through",
		"what fails here fails for clients",
		"see that {url} leads to a Carryover that runs: curl -i {url}/readyz"},
	{codeFrontForeign, severityWarn, "our headers come through",
		"clients can't see what was reused",
		"let X-KV-Reuse, X-KV-Path and X-Request-Id through (nginx: no proxy_hide_header for them), or see that {url} leads to Carryover"},
	{codeFrontID, severityError, "X-Conversation-Id comes through",
		"turns of clients that name their conversation by it reuse nothing",
		"let X-Conversation-Id through (nginx: proxy_pass_request_headers on; gateways: add it to the allow-list), or send conversation_id in the body"},
	{codeFrontBuffers, severityError, "events come one by one",
		"clients see a stream all at once, at its end",
		"nginx: proxy_buffering off; gzip off; for text/event-stream. Caddy: flush_interval -1. Traefik and cloud load balancers: no response buffering or compression"},
}
