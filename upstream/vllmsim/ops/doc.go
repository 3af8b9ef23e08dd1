// Package ops answers the endpoints with which operators and routers watch and steer a simulated instance: metrics, health, version, the
// reset of the prefix cache, and pauses (pause.go).
package ops
