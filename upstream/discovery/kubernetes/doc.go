// Package kubernetes takes the instances from the API server of the cluster that Carryover runs in: pods, by a
// label selector. It speaks HTTPS with net/http, as the pod's service account, and needs no client library: two
// verbs of one resource, list and watch.
//
// The package promises:
//
//   - It reports the last state that the API server has sent, in the order of its events (follow.go, roster.go). If the API server
//     is away, refuses or forbids, the last instances stay, and it is asked again after 1 s, 2 s, … 30 s.
//   - It lists whole and watches from there; a watch goes on from the version of its last event or bookmark. A version that the
//     API server has forgotten (410), or may never have had, makes it list again (follow.go).
//   - Roles are labels: the value of the label model is among PrefillLabels, or DecodeLabels, or both (vLLM's kv_both); any other pod
//     is skipped (role.go). A pod is an instance while it runs, is ready and is not being deleted (pod.go).
//   - The token is read anew for every request, because the kubelet replaces it (after 80 % of an hour), and is sent to the API
//     server only: redirects are not followed, the environment's proxies are not used, and the server's certificate must be
//     signed by a CA of the CA file (client.go). No log line contains the token.
//   - The input is bounded: a page of a list has at most 16 MiB, an event 2 MiB, and all together 10,000 pods (list.go, event.go,
//     roster.go).
package kubernetes
