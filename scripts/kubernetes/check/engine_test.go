package check

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// engineFlags are those of `vllm serve --help=all` of vLLM 0.32.0 that the manifests may use.
func engineFlags() []string {
	return []string{
		"--api-server-count", "--download-dir", "--enable-prompt-tokens-details", "--enable-request-id-headers", "--host",
		"--kv-transfer-config", "--max-model-len", "--port", "--served-model-name", "--shutdown-timeout",
	}
}

// transfer is vLLM's KVTransferConfig with the options of NixlConnector that reuse needs.
type transfer struct {
	Connector string `json:"kv_connector"`
	Role      string `json:"kv_role"`
	Extra     struct {
		Bidirectional bool `json:"bidirectional_kv_xfer"`
	} `json:"kv_connector_extra_config"`
}

func TestEngines(t *testing.T) {
	for _, where := range []struct {
		folder string
		ports  map[string]string
	}{
		{fleet, map[string]string{"prefill": "8000", "decode": "8000"}},
		{sidecar, map[string]string{"prefill": "8000", "decode": "8200"}},
	} {
		c := open(t, where.folder)
		for role, port := range where.ports {
			t.Run(strings.TrimPrefix(where.folder, "/kubernetes/")+"/"+role, func(t *testing.T) {
				engine := c.container(t, role, "vllm")
				if got := c.deployments[role].Spec.Template.Labels["model"]; got != role {
					t.Errorf("label model is %q, want %q", got, role)
				}
				flags := engineArguments(t, engine)
				if flags["--port"] != port || portOf(engine, engine.ReadinessProbe.HTTPGet.Port.StrVal) != port {
					t.Errorf("vLLM listens on %s and is probed on %s, want %s", flags["--port"], portOf(engine, engine.ReadinessProbe.HTTPGet.Port.StrVal), port)
				}
				if flags["--api-server-count"] != "1" {
					t.Errorf("--api-server-count is %q, want 1: several tell no start", flags["--api-server-count"])
				}
				var config transfer
				strict := json.NewDecoder(strings.NewReader(flags["--kv-transfer-config"]))
				strict.DisallowUnknownFields()
				if err := strict.Decode(&config); err != nil || config.Connector != "NixlConnector" || config.Role != "kv_both" || !config.Extra.Bidirectional {
					t.Errorf("--kv-transfer-config is %s (%v), want NixlConnector, kv_both, bidirectional", flags["--kv-transfer-config"], err)
				}
				sideChannel(t, engine)
			})
		}
	}
}

// engineArguments returns the flags with their values, variables filled in.
func engineArguments(t *testing.T, engine *corev1.Container) map[string]string {
	t.Helper()
	if !slices.Equal(engine.Command, []string{"vllm", "serve"}) || strings.HasPrefix(engine.Args[0], "-") {
		t.Errorf("command %v with %q first, want vllm serve MODEL", engine.Command, engine.Args[0])
	}
	flags := map[string]string{}
	for _, arg := range engine.Args[1:] {
		for _, variable := range engine.Env {
			arg = strings.ReplaceAll(arg, "$("+variable.Name+")", variable.Value)
		}
		name, value, _ := strings.Cut(arg, "=")
		if !slices.Contains(engineFlags(), name) {
			t.Errorf("%s is not a flag of vllm serve that this test knows", name)
		}
		if strings.Contains(value, "$(") {
			t.Errorf("%s: no variable for %s", name, value)
		}
		flags[name] = value
	}
	return flags
}

// sideChannel checks that other engines find this one's: vLLM's default is localhost.
func sideChannel(t *testing.T, engine *corev1.Container) {
	t.Helper()
	for _, variable := range engine.Env {
		switch variable.Name {
		case "VLLM_NIXL_SIDE_CHANNEL_HOST":
			if variable.ValueFrom == nil || variable.ValueFrom.FieldRef == nil || variable.ValueFrom.FieldRef.FieldPath != "status.podIP" {
				t.Error("the side channel's host is not the pod's address")
			}
		case "VLLM_NIXL_SIDE_CHANNEL_PORT":
			if got := portOf(engine, "nixl"); got != variable.Value {
				t.Errorf("the side channel's port is %s, the container's port nixl %s", variable.Value, got)
			}
		case "PYTHONPATH":
			if !slices.ContainsFunc(engine.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == variable.Value }) {
				t.Errorf("nothing is mounted at %s, where the plug-in should be", variable.Value)
			}
		}
		if strings.HasPrefix(variable.Name, "VLLM_") && !strings.HasPrefix(variable.Name, "VLLM_NIXL_SIDE_CHANNEL_") {
			t.Errorf("%s may be a variable of vLLM's own", variable.Name)
		}
	}
}

func portOf(container *corev1.Container, name string) string {
	for _, p := range container.Ports {
		if p.Name == name {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return ""
}
