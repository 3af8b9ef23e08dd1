// Package ops answers the endpoints with which operators and routers watch and steer a simulated instance: metrics, health and version, the
// reset of the prefix cache, and those that pause (pause.go).
package ops
