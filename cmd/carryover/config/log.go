package config

// The formats of the log.
const (
	LogAuto    = "auto" // console on a terminal, else text
	LogText    = "text"
	LogJSON    = "json"
	LogConsole = "console"
)
