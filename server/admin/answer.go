package admin

import (
	"encoding/json"
	"net/http"
)

// problem is the error object of an answer, in the same shape as in the API for clients.
type problem struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   any    `json:"param"` // string or null
	Code    string `json:"code"`
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	refuseParam(w, status, nil, code, message)
}

func refuseParam(w http.ResponseWriter, status int, param any, code, message string) {
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	answer(w, status, map[string]problem{"error": {message, kind, param, code}})
}

func answer(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil { // only NaN can't be written, and no engine's state has it
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the operator has gone
}
