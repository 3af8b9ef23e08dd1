package check

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func folders() []string { return []string{base, fleet, sidecar, scraped} }

// matches counts the Deployments whose pods a selector takes in.
func (c *cluster) matches(t *testing.T, where string, selector *metav1.LabelSelector) []*appsv1.Deployment {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil
	}
	var found []*appsv1.Deployment
	for _, d := range c.deployments {
		if parsed.Matches(labels.Set(d.Spec.Template.Labels)) {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		t.Errorf("%s: selector %s matches no pod", where, parsed)
	}
	return found
}

// port reports whether the pods have a container port of that number or name.
func hasPort(d *appsv1.Deployment, port intstr.IntOrString) bool {
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name == port.StrVal && port.Type == intstr.String || p.ContainerPort == port.IntVal && port.Type == intstr.Int {
				return true
			}
		}
	}
	return false
}

func TestSelectorsMatchPodsThatHaveThePorts(t *testing.T) {
	for _, folder := range folders() {
		c := open(t, folder)
		for name, d := range c.deployments {
			where := folder + " Deployment " + name
			if own := c.matches(t, where, d.Spec.Selector); len(own) != 1 || own[0] != d {
				t.Errorf("%s: selector matches %d Deployments, want its own pods only", where, len(own))
			}
			for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
				c.matches(t, where, spread.LabelSelector)
			}
		}
		for name, s := range c.services {
			where := folder + " Service " + name
			for _, d := range c.matches(t, where, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}) {
				for _, port := range s.Spec.Ports {
					if !hasPort(d, port.TargetPort) {
						t.Errorf("%s: the pods of %s have no port %s", where, d.Name, port.TargetPort.String())
					}
				}
			}
		}
		for name, b := range c.budgets {
			c.matches(t, folder+" PodDisruptionBudget "+name, b.Spec.Selector)
		}
		for name, n := range c.networks {
			where := folder + " NetworkPolicy " + name
			guarded := c.matches(t, where, &n.Spec.PodSelector)
			for _, rule := range n.Spec.Ingress {
				for _, peer := range rule.From {
					// Carryover's replicas are not part of every kustomization.
					if peer.PodSelector != nil && peer.NamespaceSelector == nil {
						c.matches(t, where, peer.PodSelector)
					}
				}
				for _, port := range rule.Ports {
					for _, d := range guarded {
						if !hasPort(d, *port.Port) {
							t.Errorf("%s: the pods of %s have no port %s", where, d.Name, port.Port.String())
						}
					}
				}
			}
		}
	}
}

func TestPodsReferToWhatExists(t *testing.T) {
	for _, folder := range folders() {
		c := open(t, folder)
		for name, d := range c.deployments {
			where := folder + " Deployment " + name
			pod := d.Spec.Template.Spec
			if pod.ServiceAccountName != "" && c.accounts[pod.ServiceAccountName] == nil {
				t.Errorf("%s: no ServiceAccount %s", where, pod.ServiceAccountName)
			}
			volumes := map[string]bool{}
			for _, v := range pod.Volumes {
				volumes[v.Name] = true
				c.volume(t, where, v)
			}
			for _, container := range pod.Containers {
				at := where + " container " + container.Name
				for _, mount := range container.VolumeMounts {
					if !volumes[mount.Name] {
						t.Errorf("%s: no volume %s", at, mount.Name)
					}
				}
				for kind, probe := range map[string]*corev1.Probe{"startup": container.StartupProbe, "readiness": container.ReadinessProbe, "liveness": container.LivenessProbe} {
					if kind != "startup" && probe == nil {
						t.Errorf("%s: no %s probe", at, kind)
					} else if probe != nil && !ownPort(container, probe) {
						t.Errorf("%s: the %s probe's port is not its own", at, kind)
					}
				}
			}
		}
		for name, b := range c.bindings {
			if c.roles[b.RoleRef.Name] == nil {
				t.Errorf("%s RoleBinding %s: no Role %s", folder, name, b.RoleRef.Name)
			}
			for _, subject := range b.Subjects {
				account := c.accounts[subject.Name]
				if account == nil || subject.Namespace != account.Namespace {
					t.Errorf("%s RoleBinding %s: no ServiceAccount %s in namespace %q", folder, name, subject.Name, subject.Namespace)
				}
			}
		}
	}
}

// volume checks that what a volume shows exists, key by key.
func (c *cluster) volume(t *testing.T, where string, v corev1.Volume) {
	t.Helper()
	switch {
	case v.ConfigMap != nil:
		config := c.configs[v.ConfigMap.Name]
		if config == nil {
			t.Errorf("%s: no ConfigMap %s", where, v.ConfigMap.Name)
			return
		}
		for _, item := range v.ConfigMap.Items {
			if _, ok := config.Data[item.Key]; !ok {
				t.Errorf("%s: ConfigMap %s has no key %s", where, v.ConfigMap.Name, item.Key)
			}
		}
		if n := len(v.ConfigMap.Items); n > 0 && n != len(config.Data) {
			t.Errorf("%s: %d of the %d keys of ConfigMap %s are mounted", where, n, len(config.Data), v.ConfigMap.Name)
		}
	case v.Secret != nil:
		if c.secrets[v.Secret.SecretName] == nil {
			t.Errorf("%s: no Secret %s", where, v.Secret.SecretName)
		}
	}
}

func ownPort(container corev1.Container, probe *corev1.Probe) bool {
	var port intstr.IntOrString
	switch {
	case probe.HTTPGet != nil:
		port = probe.HTTPGet.Port
	case probe.TCPSocket != nil:
		port = probe.TCPSocket.Port
	}
	for _, p := range container.Ports {
		if p.Name == port.StrVal {
			return true
		}
	}
	return false
}

// TestPodsAreConfined holds every container to the restricted profile of Kubernetes' pod security standards.
func TestPodsAreConfined(t *testing.T) {
	for _, folder := range folders() {
		for name, d := range open(t, folder).deployments {
			pod := d.Spec.Template.Spec
			sc := pod.SecurityContext
			if sc == nil || sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot || sc.SeccompProfile == nil || sc.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s %s: want runAsNonRoot and the seccomp profile RuntimeDefault", folder, name)
			}
			if token := pod.AutomountServiceAccountToken; token == nil || *token != (name == "carryover") {
				t.Errorf("%s %s: only Carryover's replicas get a token", folder, name)
			}
			for _, container := range pod.Containers {
				c := container.SecurityContext
				if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.Capabilities == nil || len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL" {
					t.Errorf("%s %s %s: want no privilege escalation and no capabilities", folder, name, container.Name)
				}
				if readOnly := c.ReadOnlyRootFilesystem; container.Name != "vllm" && (readOnly == nil || !*readOnly) {
					t.Errorf("%s %s %s: want a root file system that is read only", folder, name, container.Name)
				}
				if container.Name != "vllm" && container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Memory().IsZero() {
					t.Errorf("%s %s %s: want memory to be requested and limited", folder, name, container.Name)
				}
			}
		}
	}
}
