package result

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1 // what must hold does not, or something does not count
	ExitUsage       = 2 // asked wrongly, or not able to measure
	ExitNotMeasured = 3 // a bar is not measured, and nothing else is wrong
)
