// Package kubernetes takes the instances from the API server of the cluster that Carryover runs in: pods, or the endpoints of
// services, by a label selector. It speaks HTTPS with net/http, as the pod's service account, and needs no client library: two
// verbs of one resource, list and watch.
//
// The package promises:
//
//   - What it tells is what the API server told last, in the order of its events (follow.go, roster.go). An API server that is
//     away, refuses or forbids changes nothing: the instances of the last list stay, and it is asked again after 1 s, 2 s, … 30 s.
//   - It lists whole and watches from there; a watch goes on from the version of its last event or bookmark. A version that the
//     API server has forgotten (410), or may never have had, makes it list again (follow.go).
//   - Roles are labels: the value of ModelLabel is among PrefillLabels, or DecodeLabels, or both (vLLM's kv_both), or the object
//     is passed over (role.go). A pod is an instance while it runs, is ready and is not being deleted (pod.go), an endpoint while
//     it is ready and not terminating (slice.go).
//   - The token is read anew for every request, because the kubelet replaces it (after 80 % of an hour), and is sent to the API
//     server only: redirects are not followed, the environment's proxies not used, and the server is one that the CA file
//     vouches for (client.go). No log line has it.
//   - What the API server sends is bounded: a page of a list by 16 MiB, an event by 2 MiB, all of it by 10,000 objects and 10,000
//     instances (list.go, event.go, roster.go).
package kubernetes
