package check

import (
	"errors"
	"fmt"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// cluster is what a kustomization makes, by kind and name.
type cluster struct {
	deployments map[string]*appsv1.Deployment
	services    map[string]*corev1.Service
	accounts    map[string]*corev1.ServiceAccount
	configs     map[string]*corev1.ConfigMap
	secrets     map[string]*corev1.Secret
	roles       map[string]*rbacv1.Role
	bindings    map[string]*rbacv1.RoleBinding
	budgets     map[string]*policyv1.PodDisruptionBudget
	networks    map[string]*networkingv1.NetworkPolicy
	namespaces  map[string]*corev1.Namespace
	monitors    map[string]*monitoringv1.PodMonitor
}

// decode reads text as the API server does with fieldValidation=Strict: names count in their case, which encoding/json overlooks.
func decode(text []byte, into any) error {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(asJSON, into)
	return errors.Join(append(strict, err)...)
}

// take reads text strictly, as an object of the type that into has: a field that the type lacks, or has twice, is an error.
func take[T any, O interface {
	*T
	metav1.Object
}](text []byte, into *map[string]O) error {
	object := O(new(T))
	if err := decode(text, object); err != nil {
		return err
	}
	if *into == nil {
		*into = map[string]O{}
	}
	if (*into)[object.GetName()] != nil {
		return fmt.Errorf("%s is there twice", object.GetName())
	}
	(*into)[object.GetName()] = object
	return nil
}

// add reads an object of a kind that is known.
func (c *cluster) add(text []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		return take(text, &c.deployments)
	case "v1 Service":
		return take(text, &c.services)
	case "v1 ServiceAccount":
		return take(text, &c.accounts)
	case "v1 ConfigMap":
		return take(text, &c.configs)
	case "v1 Secret":
		return take(text, &c.secrets)
	case "v1 Namespace":
		return take(text, &c.namespaces)
	case "rbac.authorization.k8s.io/v1 Role":
		return take(text, &c.roles)
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return take(text, &c.bindings)
	case "policy/v1 PodDisruptionBudget":
		return take(text, &c.budgets)
	case "networking.k8s.io/v1 NetworkPolicy":
		return take(text, &c.networks)
	case "monitoring.coreos.com/v1 PodMonitor":
		return take(text, &c.monitors)
	}
	return fmt.Errorf("%s %s is not a kind that this test knows", kind.APIVersion, kind.Kind)
}

// open builds a kustomization and reads all of it.
func open(t *testing.T, folder string) *cluster {
	t.Helper()
	var c cluster
	for _, text := range build(t, folder) {
		if err := c.add(text); err != nil {
			t.Fatalf("%s: %v in\n%s", folder, err, text)
		}
	}
	return &c
}

// container is the one of that name in a Deployment.
func (c *cluster) container(t *testing.T, deployment, name string) *corev1.Container {
	t.Helper()
	d := c.deployments[deployment]
	if d == nil {
		t.Fatalf("no Deployment %s", deployment)
	}
	for i := range d.Spec.Template.Spec.Containers {
		if found := &d.Spec.Template.Spec.Containers[i]; found.Name == name {
			return found
		}
	}
	t.Fatalf("Deployment %s has no container %s", deployment, name)
	return nil
}
