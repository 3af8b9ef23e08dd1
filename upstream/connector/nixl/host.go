package nixl

import "strings"

// Policies of resolveHost; any other value is a fixed host name.
const (
	hostAuto = "auto"
	hostPin  = "pin"
)

// resolveHost returns the remote_host to forward. hostAuto, which "" also means,
// keeps the engine's host, unless it is valid on the engine's own machine only: an
// empty name, localhost (vLLM's default, VLLM_NIXL_SIDE_CHANNEL_HOST) or a wildcard
// address. Then, and with hostPin always, the result is the instance's host. IPv6
// addresses of instances and policies come back without brackets, because vLLM's
// make_zmq_path adds brackets.
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
