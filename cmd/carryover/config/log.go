package config

// The formats of the log.
const (
	LogText = "text"
	LogJSON = "json"
)
