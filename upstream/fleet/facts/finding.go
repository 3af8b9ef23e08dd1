package facts

// Finding is what is known about a yes-or-no question.
type Finding int

// The findings.
const (
	Unknown Finding = iota
	Yes
	No
)
