// Package kubetest is a fake of the Kubernetes API server, as far as lists and watches of pods go: for tests of
// the source that reads them, and of the whole program.
//
// It answers over TLS by a CA of its own, checks the bearer token and the verbs that a role grants, reads label selectors, and
// numbers every change as etcd does. Lists come in pages of one version; watches replay what came after theirs, send an object
// that no longer matches as DELETED, and end when they were asked to. The store forgets history when told to (410 Expired, as an
// ERROR event in a watch, as an answer in a page), tokens rotate, connections break, also within an event. What it does is what
// Kubernetes 1.34 does (staging/src/k8s.io/apiserver/pkg/storage/cacher, pkg/endpoints/handlers/watch.go).
//
// It imports nothing of ours, so that it cannot share our mistakes.
package kubetest
