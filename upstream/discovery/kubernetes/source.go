// Package kubernetes takes the instances from the API server of the cluster that Carryover runs in: pods, by a label selector. It
// speaks HTTPS with net/http, as the pod's service account, and needs no client library: two verbs of one resource, list and watch.
//
// The package promises:
//
//   - It reports the last state that the API server has sent, in the order of its events (follow.go, roster.go). If the API server
//     is away, refuses or forbids, the last instances stay, and it is asked again after 1 s, 2 s, … 30 s.
//   - It lists whole and watches from there; a watch goes on from the version of its last event or bookmark. A version that the
//     API server has forgotten (410), or may never have had, makes it list again (follow.go).
//   - Roles are labels: the value of the label model is among PrefillLabels, or DecodeLabels, or both (vLLM's kv_both); any other pod
//     is skipped (pod.go). A pod is an instance while it runs, is ready and is not being deleted.
//   - The token is read for every request, because the kubelet replaces it (after 80 % of an hour), and is sent to the API server
//     only: no redirects, no proxies of the environment, and the server's certificate must be signed by a CA of the CA file
//     (client.go). No log line contains the token.
//   - A page of a list has at most 16 MiB, an event 2 MiB, and all together 10,000 pods (list.go, roster.go).
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
)

// The kubelet mounts the files of a service account here.
const (
	defaultTokenFile     = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	defaultCAFile        = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	defaultNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Config says where the API server is and which of its pods are instances.
type Config struct {
	// APIHost and APIPort are the API server's, as every container has them in KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	APIHost string
	APIPort string
	// TokenFile, CAFile and NamespaceFile are the files that the kubelet mounts for the service account; empty: its default paths.
	TokenFile     string
	CAFile        string
	NamespaceFile string
	// Namespace is where the instances are; empty: the pod's own, from NamespaceFile.
	Namespace string
	// LabelSelector selects pods, in the syntax of kubectl get -l; the API server reads it. Empty: all in the namespace.
	LabelSelector string
	// Port is vLLM's HTTP port: its number, or its name in the pod.
	Port string
	// PrefillLabels and DecodeLabels are the values of the label model for each role. A value may be in both.
	PrefillLabels []string
	DecodeLabels  []string
	// Logger gets errors, and pods that should be instances and cannot be. nil for none.
	Logger *slog.Logger
	// Dial connects to the API server; nil: over TCP. TLS comes on top of it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Source is the upstream.Source of a cluster's API server.
type Source struct{ cfg Config }

// New returns a source, or an error with all faults of cfg. It reads no file and connects to nothing.
func New(cfg Config) (*Source, error) {
	cfg.TokenFile = cmp.Or(cfg.TokenFile, defaultTokenFile)
	cfg.CAFile = cmp.Or(cfg.CAFile, defaultCAFile)
	cfg.NamespaceFile = cmp.Or(cfg.NamespaceFile, defaultNamespaceFile)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Source{cfg}, nil
}

func (c Config) validate() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(c.APIHost == "", "no host of the API server: a pod has it in KUBERNETES_SERVICE_HOST")
	fault(portNumber(c.APIPort) == 0, "port %q of the API server: want 1 to 65535, a pod has it in KUBERNETES_SERVICE_PORT", c.APIPort)
	fault(c.Namespace != "" && !isNamespace(c.Namespace), "namespace %q: want at most 63 lower-case letters, digits and hyphens", c.Namespace)
	fault(portNumber(c.Port) == 0 && !isPortName(c.Port), "port %q of the instances: want 1 to 65535, or a port's name", c.Port)
	fault(len(c.PrefillLabels)+len(c.DecodeLabels) == 0, "no value of label %q for prefill or decode", roleLabel)
	return errors.Join(faults...)
}

func (c Config) namespace() (string, error) {
	if c.Namespace != "" {
		return c.Namespace, nil
	}
	text, err := os.ReadFile(c.NamespaceFile)
	if err != nil {
		return "", fmt.Errorf("namespace of this pod: %w", err)
	}
	name := strings.TrimSpace(string(text))
	if !isNamespace(name) {
		return "", fmt.Errorf("namespace of this pod: %s has no valid name", c.NamespaceFile)
	}
	return name, nil
}

func portNumber(text string) int {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

// isPortName follows the API's rule (IANA service name): at most 15 lower-case letters, digits and hyphens, one letter at least.
func isPortName(text string) bool {
	return len(text) <= 15 && strings.Trim(text, lower+digits+"-") == "" && strings.ContainsAny(text, lower)
}

func isNamespace(text string) bool {
	return text != "" && len(text) <= 63 && strings.Trim(text, lower+digits+"-") == ""
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	digits = "0123456789"
)
