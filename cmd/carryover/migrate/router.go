package migrate

import (
	"slices"
	"strconv"
	"strings"

	"carryover/cmd/carryover/config"
)

// The values of the router's --routing-logic (routing_logic.py in production-stack, August 2026).
const (
	logicDisaggregated = "disaggregated_prefill"
	logicOrchestrated  = "disaggregated_prefill_orchestrated"
)

// routerFlags are those of vllm_router (parsers/parser.py, August 2026), and of its pull requests 890 (a threshold, several instances,
// LMCache) and 913 (LMCache with its notifications), which are not merged.
func routerFlags() []theirFlag {
	const none = "nothing here does that"
	return []theirFlag{
		{name: "host", ours: "`--host`"},
		{name: "port", ours: "`--port`", remark: "8001 there, 8000 here"},
		{name: "routing-logic", ours: "`--connector`, `--routing-prefill`, `--routing-decode`", remark: "see above"},
		{name: "session-key", ours: "`--conversation-sources`", remark: "`X-Session-Id` and `X-Conversation-Id` are read by default; others have to be renamed by a gateway"},
		{name: "service-discovery", ours: "`--prefill`, `--decode` or `--k8s-…`"},
		{name: "static-backends", ours: "`--prefill`, `--decode`", remark: "by label"},
		{name: "static-model-labels", ours: "`--prefill`, `--decode`", remark: "say which backend is which"},
		{name: "prefill-model-labels", ours: "`--prefill`, or `--prefill-model-labels` with Kubernetes"},
		{name: "decode-model-labels", ours: "`--decode`, or `--decode-model-labels` with Kubernetes"},
		{name: "static-models", remark: "each instance is asked at /v1/models"},
		{name: "static-aliases", remark: "give vLLM several names (--served-model-name)"},
		{name: "static-model-types", remark: "no dummy requests are sent"},
		{name: "static-backend-health-checks", toggle: true, remark: "instances are asked for /health every four seconds"},
		{name: "backend-health-check-timeout-seconds", remark: "instances are asked for /health every four seconds"},
		{name: "k8s-namespace", ours: "`--k8s-namespace`", remark: "`default` there, the pod's own here"},
		{name: "k8s-label-selector", ours: "`--k8s-label-selector`"},
		{name: "k8s-port", ours: "`--k8s-port`"},
		{name: "k8s-service-discovery-type", ours: "`--k8s-resource`", remark: "`service-name` becomes `endpointslices`: the pods behind a service, one by one"},
		{name: "k8s-watcher-timeout-seconds", remark: "watches are renewed by themselves"},
		{name: "routing-threshold", ours: "`--disagg-threshold`", remark: "here of tokens that are in no cache, at what a token of the model has shown to have in bytes"},
		{name: "load-balancing-strategy", ours: "`--routing-prefill`, `--routing-decode`", remark: "`least_loaded` works here"},
		{name: "disagg-connector-type", ours: "`--connector`"},
		{name: "decoder-registry", ours: "`--decoder-registry`", remark: "the same JSON; checked at start"},
		{name: "decoder-host", ours: "`--lmcache-decoder-host`", remark: "for one decode instance"},
		{name: "decoder-init-port", ours: "`--lmcache-init-ports`"},
		{name: "decoder-alloc-port", ours: "`--lmcache-alloc-ports`"},
		{name: "nixl-peer-host", ours: "`--connector lmcache`", remark: "the host of each decode URL is its receiver, as there"},
		{name: "nixl-peer-init-port", ours: "`--lmcache-init-ports`", remark: "7300 there"},
		{name: "nixl-peer-alloc-port", ours: "`--lmcache-alloc-ports`", remark: "7400 there"},
		{name: "nixl-proxy-host", ours: "`--lmcache-listen`"},
		{name: "nixl-proxy-port", ours: "`--lmcache-listen`", remark: "7500 there"},
		{name: "nixl-finished-req-ttl", remark: "notifications that no turn waits for are dropped"},
		{name: "nixl-cleanup-interval", remark: "notifications that no turn waits for are dropped"},
		{name: "log-level", ours: "`--log-level`"},
		{name: "kv-aware-threshold", remark: "LMCache's controller is not asked; prefixes are known from the turns themselves"},
		{name: "lmcache-controller-port", remark: "LMCache's controller is not asked; prefixes are known from the turns themselves"},
		{name: "lmcache-health-check-interval", remark: "LMCache's controller is not asked"},
		{name: "lmcache-worker-timeout", remark: "LMCache's controller is not asked"},
		{name: "callbacks", remark: none},
		{name: "request-rewriter", remark: none},
		{name: "enable-batch-api", toggle: true, remark: "files and batches are not served"},
		{name: "file-storage-class", remark: "files and batches are not served"},
		{name: "file-storage-path", remark: "files and batches are not served"},
		{name: "batch-processor", remark: "files and batches are not served"},
		{name: "engine-stats-interval", remark: "instances' metrics are read every few seconds"},
		{name: "request-stats-window", remark: "each turn has a line in the log"},
		{name: "log-stats", toggle: true, remark: "each turn has a line in the log"},
		{name: "log-stats-interval", remark: "each turn has a line in the log"},
		{name: "dynamic-config-yaml", remark: "not read: give its settings as flags; here --config names a file, and SIGHUP reads it again"},
		{name: "dynamic-config-json", remark: "not read: give its settings as flags; here --config names a file, and SIGHUP reads it again"},
		{name: "feature-gates", remark: none},
		{name: "sentry-dsn", remark: none},
		{name: "sentry-traces-sample-rate", remark: none},
		{name: "sentry-profile-session-sample-rate", remark: none},
		{name: "otel-endpoint", remark: "OTEL_EXPORTER_OTLP_ENDPOINT in the environment says it, with http:// or https://"},
		{name: "otel-secure", toggle: true, remark: "OTEL_EXPORTER_OTLP_ENDPOINT in the environment says it, with http:// or https://"},
		{name: "otel-service-name", remark: "OTEL_SERVICE_NAME in the environment says it"},
	}
}

func convertRouter(m *migration, g theirFlags) {
	if g.has("host") {
		m.flag("host", g.last("host", ""))
	}
	m.flag("port", g.last("port", "8001"))
	disaggregated := m.routerLogic(g)
	if g.last("service-discovery", "") == "k8s" || !g.has("service-discovery", "static-backends") && g.has("k8s-label-selector", "k8s-namespace", "k8s-port") {
		m.routerKubernetes(g, disaggregated)
	} else {
		m.routerStatic(g, disaggregated)
	}
	if g.has("log-level") {
		level := map[string]string{"critical": "error", "error": "error", "warning": "warn", "info": "info", "debug": "debug", "trace": "debug"}[g.last("log-level", "")]
		if level == "" {
			m.fail("log-level", "critical, error, warning, info, debug or trace")
		}
		m.flag("log-level", level)
	}
}

// routerLogic says which way turns go, and whether there are instances of two roles.
func (m *migration) routerLogic(g theirFlags) (disaggregated bool) {
	logic := g.last("routing-logic", "")
	switch logic {
	case logicOrchestrated:
		m.flag("connector", config.ConnectorOrchestrated)
		m.note("routing-logic", "decode gets prefill's kv_transfer_params, as there (--orchestrated-form response: all of its answer, as disagg_prefill_resp). "+
			"Where the engines run NixlConnector, --connector nixl does that too, and reuses KV from turn to turn")
	case logicDisaggregated:
		m.routerConnector(g)
	case "roundrobin", "session", "prefixaware", "kvaware", "loadaware", "priority":
		m.routerWhole(g, logic)
		return false
	default:
		m.fail("routing-logic", "disaggregated_prefill, disaggregated_prefill_orchestrated, roundrobin, session, prefixaware, kvaware, loadaware or priority")
		return false
	}
	if g.has("session-key") {
		m.sessionKey(g)
	}
	m.routerPolicy(g)
	if n := g.last("routing-threshold", "0"); n != "0" {
		m.flag("disagg-threshold", n)
	}
	return true
}

// routerPolicy keeps a strategy that was chosen, and leaves ours otherwise.
func (m *migration) routerPolicy(g theirFlags) {
	switch strategy := g.last("load-balancing-strategy", ""); strategy {
	case "":
		m.notes = append(m.notes, "Instances are taken in turn there; here by what they hold and how busy they are, unless --routing-prefill and --routing-decode say round_robin")
	case "round_robin", "least_loaded":
		m.flag("routing-prefill", strategy)
		m.flag("routing-decode", strategy)
	default:
		m.fail("load-balancing-strategy", "round_robin or least_loaded")
	}
}

// routerConnector finds the connector behind disaggregated_prefill, which stands for three protocols.
func (m *migration) routerConnector(g theirFlags) {
	notified := g.has("nixl-proxy-host") && g.has("nixl-peer-host") // the router needs both to leave the shared-storage way
	switch kind := g.last("disagg-connector-type", ""); {
	case kind == "lmcache" || notified:
		m.flag("connector", config.ConnectorLMCache)
		m.routerReceivers(g, notified)
	case kind == "nixl", kind == "" && g.has("routing-threshold", "load-balancing-strategy"):
		m.flag("connector", config.ConnectorNIXL)
	case kind == "":
		m.flag("connector", config.ConnectorLMCacheStorage)
		m.note("routing-logic", "both legs get the same request and no params, as there: prefill and decode share LMCache's storage. Where the engines run NixlConnector, take --connector nixl")
		for _, name := range []string{"nixl-peer-host", "nixl-proxy-host"} {
			if g.has(name) {
				m.note(name, "has no effect there without --nixl-peer-host and --nixl-proxy-host together")
			}
		}
	default:
		m.fail("disagg-connector-type", "nixl or lmcache")
	}
}

func (m *migration) routerReceivers(g theirFlags, notified bool) {
	if g.has("decoder-registry") {
		m.flag("decoder-registry", g.last("decoder-registry", ""))
	} else if g.has("decoder-host", "decoder-init-port", "decoder-alloc-port") {
		m.flag("lmcache-decoder-host", g.last("decoder-host", ""))
		m.flag("lmcache-init-ports", g.last("decoder-init-port", ""))
		m.flag("lmcache-alloc-ports", g.last("decoder-alloc-port", ""))
	} else if notified {
		m.flag("lmcache-init-ports", g.last("nixl-peer-init-port", "7300"))
		m.flag("lmcache-alloc-ports", g.last("nixl-peer-alloc-port", "7400"))
		m.note("nixl-peer-host", "the receiver is at the host of each decode URL, which the router takes too where it can")
	}
	if notified {
		m.flag("lmcache-listen", g.last("nixl-proxy-host", "")+":"+g.last("nixl-proxy-port", "7500"))
		m.note("nixl-proxy-host", "decode is not asked before the KV has arrived; the router asks it after 10 s all the same. Here the turn fails after "+
			"--handover-budget, or decode computes the prompt (--lmcache-unready decode)")
		return
	}
	m.flag("lmcache-listen", "0.0.0.0:7500")
	m.note("disagg-connector-type", "the router does not wait for KV, here decode does: have prefill's LMCache notify port 7500 of this host "+
		"(pd_proxy_host, pd_proxy_port), without pd_skip_proxy_notification")
}

// routerWhole is for backends that prefill for themselves.
func (m *migration) routerWhole(g theirFlags, logic string) {
	policy := map[string]string{"roundrobin": "round_robin", "session": "affinity", "prefixaware": "prefix", "kvaware": "prefix", "loadaware": "least_loaded", "priority": "least_loaded"}[logic]
	m.flag("routing-prefill", policy)
	m.flag("routing-decode", policy)
	m.flag("disagg-threshold", strconv.Itoa(1<<30))
	m.note("routing-logic", "each turn stays on one instance, as there; --disagg-threshold keeps it there. Without it, instances with a KV connector (kv_both) share the work")
	if logic == "kvaware" {
		m.note("routing-logic", "LMCache's controller is not asked; prefixes are known from the turns themselves")
	}
	if logic == "session" || g.has("session-key") {
		m.sessionKey(g)
	}
}

// sessionKey names the header of sessions, where that is one of ours.
func (m *migration) sessionKey(g theirFlags) {
	key := g.last("session-key", "")
	for _, source := range config.ConversationSources() {
		if header, ok := strings.CutPrefix(source, "header:"); ok && strings.EqualFold(header, key) {
			m.flag("conversation-sources", source)
			return
		}
	}
	m.note("session-key", "a header "+key+" is not read; have a gateway name it X-Session-Id, or clients send conversation_id")
}

// routerStatic shares the backends among the roles by their labels.
func (m *migration) routerStatic(g theirFlags, disaggregated bool) {
	backends := g.items("static-backends", "")
	if len(backends) == 0 {
		m.fail("static-backends", "the URLs of the backends, or --service-discovery k8s")
		return
	}
	if !disaggregated {
		for _, backend := range backends {
			m.flag("prefill", backend)
		}
		for _, backend := range backends {
			m.flag("decode", backend)
		}
		return
	}
	labels := g.items("static-model-labels", "")
	if len(labels) != len(backends) {
		m.fail("static-model-labels", "a label for each of the "+strconv.Itoa(len(backends))+" backends: they say which prefill and which decode")
		return
	}
	for _, role := range []string{config.RolePrefill, config.RoleDecode} {
		wanted := g.items(role+"-model-labels", "")
		found := false
		for i, backend := range backends {
			if slices.Contains(wanted, labels[i]) {
				m.flag(role, backend)
				found = true
			}
		}
		if !found {
			m.fail(role+"-model-labels", "a label that a backend has")
		}
	}
	for i, backend := range backends {
		if !slices.Contains(append(g.items("prefill-model-labels", ""), g.items("decode-model-labels", "")...), labels[i]) {
			m.note("static-backends", backend+" has neither label and gets nothing")
		}
	}
}

func (m *migration) routerKubernetes(g theirFlags, disaggregated bool) {
	prefill, decode := g.last("prefill-model-labels", config.RolePrefill), g.last("decode-model-labels", config.RoleDecode)
	selector := g.last("k8s-label-selector", "")
	if selector == "" {
		selector = "model in (" + prefill + "," + decode + ")"
		m.note("k8s-label-selector", "empty there, all pods; here those with the labels of either role")
	}
	m.flag("k8s-label-selector", selector)
	m.flag("k8s-namespace", g.last("k8s-namespace", "default"))
	m.flag("k8s-port", g.last("k8s-port", "8000"))
	m.flag("prefill-model-labels", prefill)
	m.flag("decode-model-labels", decode)
	if g.last("k8s-service-discovery-type", "") == "service-name" {
		m.flag("k8s-resource", "endpointslices")
		m.note("k8s-service-discovery-type", "the pods behind each service are instances, not the service; its EndpointSlices must have the label model")
	}
	if !disaggregated {
		m.note("routing-logic", "pods are of one role here: those with the label model="+prefill+" prefill, those with model="+decode+" decode")
	}
}
