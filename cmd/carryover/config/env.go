package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"carryover/cmd/carryover/command"
	"carryover/server/suggest"
)

// Environment turns os.Environ into a map. The last entry of a name wins, as in os/exec.
func Environment(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok {
			m[name] = value
		}
	}
	return m
}

// applyEnv counts an empty variable as unset, because `${TTL:-}` in a compose file makes one.
func (l *Loader) applyEnv(env map[string]string) {
	l.refuseUnknown(env)
	for _, s := range l.rows {
		name := s.Variable()
		if value := env[name]; name != "" && value != "" && !isServiceLink(name, value) {
			l.set(s, value, name)
		}
	}
}

// isServiceLink recognises CARRYOVER_PORT=tcp://10.0.0.11:8000. Kubernetes sets it in every container of a namespace with a Service
// carryover (documentation "Service", environment variables). vLLM has the same problem with VLLM_PORT (vllm/envs.py, get_vllm_port).
func isServiceLink(name, value string) bool {
	scheme, _, ok := strings.Cut(value, "://")
	return ok && strings.HasSuffix(name, "_PORT") && (scheme == "tcp" || scheme == "udp")
}

const ourVariables = "CARRYOVER_"

// ofServices recognises other variables that Kubernetes sets for a Service (documentation "Service", environment variables), and Docker
// for links. Services carryover and carryover-redis give names that begin like ours.
func ofServices(name string) bool {
	return regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`).MatchString(name)
}

// refuseUnknown reports mistyped variables, which would leave a default in force. It shows no value, because that may be a secret.
func (l *Loader) refuseUnknown(env map[string]string) {
	known := []string{strings.TrimPrefix(configVariable, ourVariables)}
	for _, s := range l.rows {
		if name, ours := strings.CutPrefix(s.Variable(), ourVariables); ours {
			known = append(known, name)
		}
	}
	var unknown []string
	for variable, value := range env {
		name, ours := strings.CutPrefix(variable, ourVariables)
		if ours && value != "" && !slices.Contains(known, name) && !ofServices(variable) && !isServiceLink(variable, value) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		question := suggest.DidYouMean(name, known, func(near string) string { return ourVariables + near })
		if question == "" {
			question = "; variables are named after flags, see carryover --help-all"
		}
		l.faults = append(l.faults, fmt.Errorf("environment: %s is not a variable of Carryover%s", ourVariables+name, question))
	}
}

// meantKey suggests a neighbour of an unknown key, or the full key in another section with this name or flag.
func (l *Loader) meantKey(name string, neighbours []string) string {
	if question := command.Meant(name, neighbours); question != "" {
		return question
	}
	plain := strings.ReplaceAll(name, "-", "_")
	for _, s := range l.rows {
		if s.Name() == plain || s.Flag == strings.ReplaceAll(name, "_", "-") {
			return "; did you mean " + s.Key + "?"
		}
	}
	return ""
}
