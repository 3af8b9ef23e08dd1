package nixl

import "strings"

// Policies of resolveHost; any other value is a fixed host name.
const (
	hostAuto = "auto"
	hostPin  = "pin"
)

// resolveHost returns the remote_host to forward. hostAuto, also the meaning of
// "", keeps what the engine says unless that is a name that only the engine's own
// machine understands: nothing, localhost (vLLM's default,
// VLLM_NIXL_SIDE_CHANNEL_HOST) or a wildcard address. hostPin always gives the
// instance's host. IPv6 addresses come back without brackets, which vLLM's
// make_zmq_path adds itself.
func resolveHost(policy, engineHost, instanceHost string) string {
	switch policy {
	case hostAuto, "":
		switch strings.ToLower(engineHost) {
		case "", "localhost", "0.0.0.0", "::":
			return unbracket(instanceHost)
		}
		return engineHost
	case hostPin:
		return unbracket(instanceHost)
	}
	return unbracket(policy)
}

func unbracket(host string) string {
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
