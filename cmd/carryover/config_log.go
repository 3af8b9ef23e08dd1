package main

// The formats of the log.
const (
	logAuto    = "auto" // console on a terminal, else text
	logText    = "text"
	logJSON    = "json"
	logConsole = "console"
)
