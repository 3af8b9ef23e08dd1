package vllmsim

import "net/http"

func (i *Instance) serveMetrics(w http.ResponseWriter) error {
	_ = w
	return nil
}
