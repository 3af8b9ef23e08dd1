// Package compose reads compose.yaml as docker compose does, with the same library, and maps a service to one process on this
// machine: its command, environment, files and secrets, with addresses of loopback for names of services. Its tests hold
// compose.yaml, the Dockerfile and scripts/observability to each other and to the program; local starts profiles with it.
//
// It is a module of its own, so that the libraries of compose and Prometheus stay out of the program's.
package compose
