// Package quarantine keeps turns away from incarnations of prefill that compute other ids than they are sent, and from all KV that may
// have come through their caches. What descends from such a cache, and since when, package lineage decides; this package tells it which
// leg finds which cache, tells the fleet and the operators what follows, and shares it with other replicas.
//
//   - lineages.go: the caches that KV comes through, by incarnation, and the quarantine of one that was caught
//   - watch.go: which incarnations are quarantined, shared with other replicas and repeated in the log
//   - exposure.go: which KV is in doubt, shared with other replicas; the tickets that descend from it are given up
package quarantine
