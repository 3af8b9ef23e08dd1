// Package api answers the endpoints of clients: chat and text completions, the Messages and the Responses API, the ids of a prompt (/tokenize
// and the render endpoints), and the list of models.
//
// A request is one completion (completion.go). Its prompts are rendered, and its choices take turns in the engine. The output of a choice
// becomes pieces of text, thought or tool call (output.go). Each API writes them in one piece or as events: stream.go, messages_stream.go,
// responses_stream.go.
package api
