package compose

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// program builds Carryover.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "carryover")
	build := exec.Command("go", "build", "-o", path, "./cmd/carryover")
	build.Dir = Root
	output(t, build)
	return path
}

// accepts has the program itself look at the arguments and the environment of a service; of a simulated engine at its flags.
func accepts(l *Loopback, service types.ServiceConfig) ([]byte, error) {
	p, err := l.Process(service.Name)
	if err != nil {
		return nil, err
	}
	run := exec.Command(p.Args[0], append([]string{"check-config"}, p.Args[1:]...)...)
	if !strings.HasPrefix(service.Command[0], "--") {
		run = exec.Command(p.Args[0], append(p.Args[1:], "--help")...) // after a flag that it does not know, it does not get there
	}
	run.Env = p.Env
	return run.CombinedOutput()
}

func TestCarryoverAcceptsItsCommands(t *testing.T) {
	carryover := program(t)
	root := copyOfSecrets(t)
	makeSecrets(t, root)
	checked := 0
	for _, profile := range []string{"sim", "scale", "gpu"} {
		project := load(t, profile)
		for name, secret := range project.Secrets {
			secret.File = filepath.Join(root, filepath.Base(secret.File))
			project.Secrets[name] = secret
		}
		l, err := NewLoopback(project, carryover, t.TempDir(), 1, 1)
		must(t, err)
		for _, service := range project.Services {
			if service.Image != Image {
				continue
			}
			checked++
			if text, err := accepts(l, service); err != nil {
				t.Errorf("%s: %v\n%s", service.Name, err, text)
			}
			if service.Name == "build" {
				continue // version has no flags
			}
			service.Command = slices.Concat(service.Command, []string{"--no-such-flag"})
			project.Services[service.Name] = service
			if text, err := accepts(l, service); err == nil || !strings.Contains(string(text), "no-such-flag") {
				t.Errorf("%s: a flag that the program does not know is accepted: %s", service.Name, text)
			}
		}
	}
	if checked < 11 {
		t.Errorf("%d commands were checked", checked)
	}
}

// TestCarryoverKnowsItsVariables: the program refuses a variable with its prefix that it does not read. Those of settings are made of
// the flags; the others are secrets, the OpenTelemetry specification's and Go's.
func TestCarryoverKnowsItsVariables(t *testing.T) {
	help, err := exec.Command(program(t), "serve", "--help-all").Output()
	must(t, err)
	known := func(variable string) bool {
		if slices.Contains([]string{"CARRYOVER_SECRET", "CARRYOVER_ADMIN_TOKEN", "OPENAI_API_KEY", "GOMEMLIMIT",
			"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_METRICS_EXPORTER", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"}, variable) {
			return true
		}
		name, ours := strings.CutPrefix(variable, "CARRYOVER_")
		return ours && strings.Contains(string(help), "  --"+strings.ToLower(strings.ReplaceAll(name, "_", "-"))+" ")
	}
	if !known("CARRYOVER_REDIS_URL") || !known("CARRYOVER_REDIS_INSECURE") || known("CARRYOVER_REDIS") || known("CARRYOVER_RELEASE_BACKLOGS") {
		t.Error("the help is read wrongly")
	}
	eachService(t, func(t *testing.T, s types.ServiceConfig) {
		for variable := range s.Environment {
			if s.Image == Image && !known(variable) {
				t.Errorf("variable %s", variable)
			}
		}
	})
}
