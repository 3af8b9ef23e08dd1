package wire

// The paths of the endpoints for answers, and of related endpoints.
const (
	PathChat          = "/v1/chat/completions"
	PathCompletions   = "/v1/completions"
	PathMessages      = "/v1/messages"
	PathMessagesCount = PathMessages + "/count_tokens"
	PathResponses     = "/v1/responses"
)

// Generates reports whether requests to a path ask for answers of the model.
func Generates(path string) bool {
	return path == PathChat || path == PathCompletions || path == PathMessages || path == PathResponses
}
