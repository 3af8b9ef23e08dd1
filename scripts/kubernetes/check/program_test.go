package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// program builds Carryover.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "carryover")
	build := exec.Command("go", "build", "-o", path, "./cmd/carryover")
	build.Dir = "../../.."
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build Carryover: %v\n%s", err, text)
	}
	return path
}

// place writes a file and the folders that lead to it.
func place(t *testing.T, path string, text []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, text, 0o600))
}

// TestCarryoverAcceptsItsConfiguration has the program itself check the arguments and the configuration of each of its containers,
// with the volumes' files in a folder in place of the pod's root.
func TestCarryoverAcceptsItsConfiguration(t *testing.T) {
	carryover := program(t)
	for where, deployment := range map[string]string{fleet: "carryover", sidecar: "decode", scraped: "carryover"} {
		t.Run(strings.TrimPrefix(where, "/kubernetes/overlays/"), func(t *testing.T) {
			c := open(t, where)
			container := c.container(t, deployment, "carryover")
			pod := t.TempDir()
			inPod := func(text string) string { return strings.ReplaceAll(text, "/etc/carryover/", pod+"/etc/carryover/") }
			for _, mount := range container.VolumeMounts {
				for _, v := range c.deployments[deployment].Spec.Template.Spec.Volumes {
					switch {
					case v.Name != mount.Name:
					case v.ConfigMap != nil:
						for key, text := range c.configs[v.ConfigMap.Name].Data {
							place(t, filepath.Join(pod, mount.MountPath, key), []byte(inPod(text)))
						}
					case v.Secret != nil:
						for key, text := range c.secrets[v.Secret.SecretName].Data {
							place(t, filepath.Join(pod, mount.MountPath, key), text)
						}
					}
				}
			}
			args := []string{"check-config"}
			for _, arg := range container.Args {
				args = append(args, inPod(arg))
			}
			run := exec.Command(carryover, args...)
			run.Env = []string{"KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443"} // as in every pod
			for _, variable := range container.Env {
				run.Env = append(run.Env, variable.Name+"="+inPod(variable.Value))
			}
			if text, err := run.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", strings.Join(run.Args[1:], " "), err, text)
			}
		})
	}
}

// TestCarryoverHasTheTimeToDrain compares the pod's grace with what comes before its end.
func TestCarryoverHasTheTimeToDrain(t *testing.T) {
	c := open(t, fleet)
	var cfg struct {
		Timeouts struct {
			Grace string `json:"shutdown_grace"`
		} `json:"timeouts"`
	}
	must(t, yaml.Unmarshal([]byte(c.config(t)), &cfg))
	grace, err := time.ParseDuration(cfg.Timeouts.Grace)
	must(t, err)
	stop := time.Duration(c.container(t, "carryover", "carryover").Lifecycle.PreStop.Sleep.Seconds) * time.Second
	given := time.Duration(*c.deployments["carryover"].Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if given < stop+grace+5*time.Second {
		t.Errorf("terminationGracePeriodSeconds is %v, want preStop (%v), --shutdown-grace (%v) and 5 s at least", given, stop, grace)
	}
}
