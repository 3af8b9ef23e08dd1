package vllmsim

// The paths of the endpoints for answers, and of those that belong to them.
const (
	pathChat            = "/v1/chat/completions"
	pathCompletions     = "/v1/completions"
	pathMessages        = "/v1/messages"
	pathMessagesCount   = pathMessages + "/count_tokens"
	pathMessagesRender  = pathMessages + "/render"
	pathResponses       = "/v1/responses"
	pathResponsesRender = pathResponses + "/render"
)

// answers reports whether requests to a path are for answers of the model.
func answers(path string) bool {
	return path == pathChat || path == pathCompletions || path == pathMessages || path == pathResponses
}
