package kubetest

import "testing"

func TestSelector(t *testing.T) {
	labels := map[string]string{"app": "vllm", "model": "decode"}
	for text, want := range map[string]bool{
		"":                                   true,
		"app=vllm":                           true,
		"app == vllm, model!=prefill":        true,
		"model in (prefill,decode)":          true,
		"model in ( prefill ),app":           false,
		"model notin (prefill, canary)":      true,
		"model notin (decode)":               false,
		"tier notin (a)":                     true,
		"tier!=a":                            true,
		"tier=a":                             false,
		"app,model":                          true,
		"!tier":                              true,
		"!app":                               false,
		"app in (vllm),model in (decode),!x": true,
	} {
		s, err := parseSelector(text)
		if err != nil || s.matches(labels) != want {
			t.Errorf("%q: got %v (%v), want %v", text, s.matches(labels), err, want)
		}
	}
	for _, text := range []string{"app in vllm", "a b", "()", "app,,model", "!"} {
		if _, err := parseSelector(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
