package config

import (
	"strings"
)

// Environment turns the result of os.Environ into a map. If a name occurs twice, the last entry wins, as in os/exec.
func Environment(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok {
			m[name] = value
		}
	}
	return m
}

// applyEnv reads the variable of every setting. An empty variable counts as unset, because `${TTL:-}` in a compose file makes one.
func (l *Loader) applyEnv(env map[string]string) {
	l.refuseUnknown(env)
	for _, s := range l.rows {
		name := s.Variable()
		if value := env[name]; name != "" && value != "" && !isServiceLink(name, value) {
			l.set(s, value, name)
		}
	}
}

// isServiceLink recognises CARRYOVER_PORT=tcp://10.0.0.11:8000, which Kubernetes puts into every container of a namespace
// that has a Service called carryover (documentation "Service", environment variables). vLLM trips over its own VLLM_PORT
// in the same way (vllm/envs.py, get_vllm_port).
func isServiceLink(name, value string) bool {
	scheme, _, ok := strings.Cut(value, "://")
	return ok && strings.HasSuffix(name, "_PORT") && (scheme == "tcp" || scheme == "udp")
}
