package compose

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

// served runs a vLLM service's command as its container would, with stand-ins for vllm and hostname, and returns the arguments that
// vLLM gets and the address of its side channel.
func served(t *testing.T, service types.ServiceConfig) (args []string, side string) {
	t.Helper()
	bin := t.TempDir()
	place(t, filepath.Join(bin, "hostname"), "#!/bin/sh\n[ \"$1\" = -i ] && echo 172.18.0.5 fd00::5\n")
	place(t, filepath.Join(bin, "vllm"), "#!/bin/sh\nprintf '%s\\n' \"$VLLM_NIXL_SIDE_CHANNEL_HOST:$VLLM_NIXL_SIDE_CHANNEL_PORT\" \"$@\"\n")
	command := slices.Concat(service.Entrypoint, service.Command)
	run := exec.Command(command[0], command[1:]...)
	run.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	for name, value := range service.Environment {
		run.Env = append(run.Env, name+"="+*value)
	}
	lines := strings.Split(strings.TrimSpace(output(t, run)), "\n")
	return lines[1:], lines[0]
}

// manifest reads the arguments of the engines in scripts/kubernetes, whose test holds them to vLLM's own, with its variables filled in.
func manifest(t *testing.T) []string {
	t.Helper()
	text := read(t, filepath.Join(Root, "scripts", "kubernetes", "base", "vllm", "instance.yaml"))
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Image string   `yaml:"image"`
						Args  []string `yaml:"args"`
					} `yaml:"containers"`
				} `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	must(t, yaml.Unmarshal([]byte(text), &deployment))
	container := deployment.Spec.Template.Spec.Containers[0]
	filled := strings.NewReplacer("$(MODEL)", "Qwen/Qwen3-0.6B", "$(SERVE_PORT)", "8000")
	args := []string{container.Image, "serve"}
	for _, arg := range container.Args {
		args = append(args, filled.Replace(arg))
	}
	return args
}

func TestEngines_AreStartedAsOnKubernetes(t *testing.T) {
	project := load(t, "gpu")
	want := manifest(t)
	for _, role := range []string{"prefill", "decode"} {
		service := project.Services[role]
		args, side := served(t, service)
		if got := append([]string{service.Image}, args...); !slices.Equal(got, want) {
			t.Errorf("%s runs\n%v, want\n%v", role, got, want)
		}
		if side != "172.18.0.5:5600" {
			t.Errorf("%s: its side channel is at %s", role, side)
		}
		if len(service.Networks) != 1 {
			t.Errorf("%s is on %d networks: `hostname -i` may tell an address that the other engine can't reach", role, len(service.Networks))
		}
		if transfer := strings.TrimPrefix(args[len(args)-1], "--kv-transfer-config="); !json.Valid([]byte(transfer)) {
			t.Errorf("%s: --kv-transfer-config is %s", role, transfer)
		}
	}
}

// TestEngines_FindThePlugIn: Python finds the entry point in the folder that is mounted.
func TestEngines_FindThePlugIn(t *testing.T) {
	for _, role := range []string{"prefill", "decode"} {
		service := load(t, "gpu").Services[role]
		i := slices.IndexFunc(service.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == *service.Environment["PYTHONPATH"] })
		if i < 0 {
			t.Fatalf("%s: nothing is mounted on PYTHONPATH", role)
		}
		find := exec.Command("python3", "-c", `from importlib.metadata import entry_points
print([e.value for e in entry_points(group="vllm.general_plugins", name="carryover")])`)
		find.Env = []string{"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + service.Volumes[i].Source, "PYTHONDONTWRITEBYTECODE=1"}
		if text := output(t, find); !strings.Contains(text, "carryover_vllm") {
			t.Errorf("%s: Python finds %s", role, text)
		}
	}
}
