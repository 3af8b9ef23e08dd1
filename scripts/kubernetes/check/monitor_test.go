package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestMetricsAreReachable follows Prometheus from the PodMonitor to the listener: the pods, their port and address, the token on both
// sides, and the network policy, which lets in Prometheus' namespace and nobody else.
func TestMetricsAreReachable(t *testing.T) {
	c := open(t, scraped)
	monitor := c.monitors["carryover"]
	if monitor == nil || monitor.Namespace != "serving" || len(monitor.Spec.PodMetricsEndpoints) != 1 {
		t.Fatalf("got PodMonitor %+v, want one endpoint in the namespace of the pods", monitor)
	}
	if pods := c.matches(t, "PodMonitor", &monitor.Spec.Selector); len(pods) != 1 || pods[0].Name != "carryover" {
		t.Errorf("it selects the pods of %d Deployments, want Carryover's", len(pods))
	}
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	if endpoint.Port == nil || *endpoint.Port != "admin" || endpoint.Path != "/metrics" || !endpoint.HonorLabels {
		t.Errorf("got endpoint %+v, want port admin, /metrics, and the program's own labels", endpoint)
	}
	container := c.container(t, "carryover", "carryover")
	port := intstr.FromString(*endpoint.Port)
	if !hasPort(c.deployments["carryover"], port) {
		t.Error("the pods have no such port")
	}
	given := map[string]string{}
	for _, variable := range container.Env {
		given[variable.Name] = variable.Value
	}
	if got, want := given["CARRYOVER_ADMIN_LISTEN"], "0.0.0.0:9480"; got != want || !hasPort(c.deployments["carryover"], intstr.FromInt32(9480)) {
		t.Errorf("it listens at %q, want %s, and the port among the container's", got, want)
	}
	token := endpoint.Authorization.Credentials
	if secret := c.secrets[token.Name]; secret == nil || len(secret.Data[token.Key]) == 0 {
		t.Errorf("Secret %s has no key %s", token.Name, token.Key)
	}
	mounted := ""
	for _, v := range c.deployments["carryover"].Spec.Template.Spec.Volumes {
		for _, mount := range container.VolumeMounts {
			if v.Name == mount.Name && v.Secret != nil && v.Secret.SecretName == token.Name {
				mounted = mount.MountPath + "/" + token.Key
			}
		}
	}
	if got := given["CARRYOVER_ADMIN_TOKEN_FILE"]; got == "" || got != mounted {
		t.Errorf("the listener's token is read from %q, Prometheus' is at %q", got, mounted)
	}
	for _, rule := range c.networks["carryover"].Spec.Ingress {
		if len(rule.Ports) == 1 && *rule.Ports[0].Port == port {
			if len(rule.From) != 1 || rule.From[0].NamespaceSelector == nil {
				t.Errorf("the port is open to %+v, want one namespace", rule.From)
			}
			return
		}
	}
	t.Error("no rule of the network policy opens the port")
}

// TestMetricsStayInside: without the overlay, the listener is on loopback, and the policy opens one port.
func TestMetricsStayInside(t *testing.T) {
	c := open(t, fleet)
	if hasPort(c.deployments["carryover"], intstr.FromInt32(9480)) || len(c.monitors) > 0 {
		t.Error("the fleet lets the admin listener out")
	}
	rules := c.networks["carryover"].Spec.Ingress
	if len(rules) != 1 || len(rules[0].Ports) != 1 || rules[0].Ports[0] != (networkingv1.NetworkPolicyPort{Port: rules[0].Ports[0].Port}) || rules[0].Ports[0].Port.StrVal != "http" {
		t.Errorf("got rules %+v", rules)
	}
}

// TestSecretsAreTheirOwnersAlone runs the script in a copy of its folders.
func TestSecretsAreTheirOwnersAlone(t *testing.T) {
	folder := t.TempDir()
	for _, file := range []string{"kubernetes/secrets", "replicas/redis.acl"} {
		place(t, filepath.Join(folder, file), read(t, filepath.Join(root, file)))
	}
	for _, file := range secretFiles() {
		must(t, os.MkdirAll(filepath.Join(folder, "kubernetes", filepath.Dir(file)), 0o755))
	}
	open := filepath.Join(folder, "kubernetes/base/carryover/secrets/secret")
	must(t, os.WriteFile(open, []byte("made before"), 0o644))
	if text, err := exec.Command("bash", filepath.Join(folder, "kubernetes", "secrets")).CombinedOutput(); err != nil {
		t.Fatalf("secrets: %v\n%s", err, text)
	}
	for _, file := range secretFiles() {
		info, err := os.Stat(filepath.Join(folder, "kubernetes", file))
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if text := read(t, open); string(text) != "made before" {
		t.Errorf("a secret that was there is now %q", text)
	}
}
