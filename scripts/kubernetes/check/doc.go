// Package check holds the manifests of scripts/kubernetes to what they are for: to the published types of the Kubernetes API, to each
// other, to the flags of Carryover and of vLLM, and to what the source of instances asks of the API server.
//
// It is a module of its own, so that the API's types stay out of the program's.
package check
