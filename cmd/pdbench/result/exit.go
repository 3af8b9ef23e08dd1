package result

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1 // a bar does not hold, or a figure does not count
	ExitUsage       = 2 // wrong arguments, or it could not measure
	ExitNotMeasured = 3 // a bar was not measured; nothing else is wrong
)
