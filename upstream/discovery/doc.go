// Package discovery says where instances come from. Each source is an upstream.Source:
//
//   - [Listed] gives the list of the configuration, which a reload replaces (listed.go);
//   - [Registry] has instances that are added and removed at run time (registry.go);
//   - [Named] has the prefill instances that requests name, as far as a [Pattern] permits (named.go, pattern.go);
//   - [Together] makes one source of several (together.go, union.go).
//
// It promises that
//
//   - a source calls set with a first list before anything else, and then on changes only;
//   - names and addresses are unique within a role (registry.go, union.go);
//   - a change from within the program (Replace, Add, Remove, Admit) returns when set has been called with it (list.go).
//
// Only addresses that upstream.NewInstance accepts become instances. What a source does not know of an instance (KVHost, KVTTL) it leaves empty, and cmd fills it in. cmd makes the sources and calls
// Watch; nothing here calls back into the fleet but by set. Watch ends with its context and leaves no goroutine behind.
package discovery
