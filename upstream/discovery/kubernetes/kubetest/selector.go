package kubetest

import (
	"fmt"
	"slices"
	"strings"
)

// selector is a label selector: all of its requirements hold.
type selector []requirement

type requirement struct {
	key     string
	values  []string
	negated bool
	exists  bool // the key is enough
}

// parseSelector reads k=v, k==v, k!=v, k, !k, "k in (a,b)" and "k notin (a,b)", joined by commas.
func parseSelector(text string) (selector, error) {
	var all selector
	for text = strings.TrimSpace(text); text != ""; {
		var part string
		part, text = cutRequirement(text)
		r, err := parseRequirement(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// cutRequirement splits at the first comma that is not inside parentheses.
func cutRequirement(text string) (part, rest string) {
	inside := false
	for i, c := range text {
		switch {
		case c == '(':
			inside = true
		case c == ')':
			inside = false
		case c == ',' && !inside:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

func parseRequirement(text string) (requirement, error) {
	for _, operator := range []string{" notin ", " in "} {
		if key, list, ok := strings.Cut(text, operator); ok {
			list = strings.TrimSpace(list)
			if !strings.HasPrefix(list, "(") || !strings.HasSuffix(list, ")") {
				return requirement{}, fmt.Errorf("unable to parse requirement: %q", text)
			}
			values := strings.Split(strings.Trim(list, "()"), ",")
			for i := range values {
				values[i] = strings.TrimSpace(values[i])
			}
			return requirement{key: strings.TrimSpace(key), values: values, negated: operator == " notin "}, nil
		}
	}
	for _, operator := range []string{"!=", "==", "="} {
		if key, value, ok := strings.Cut(text, operator); ok {
			return requirement{key: strings.TrimSpace(key), values: []string{strings.TrimSpace(value)}, negated: operator == "!="}, nil
		}
	}
	key, negated := strings.CutPrefix(text, "!")
	if key == "" || strings.ContainsAny(key, " ()") {
		return requirement{}, fmt.Errorf("unable to parse requirement: %q", text)
	}
	return requirement{key: key, negated: negated, exists: true}, nil
}

func (s selector) matches(labels map[string]string) bool {
	for _, r := range s {
		value, ok := labels[r.key]
		if !r.exists {
			ok = ok && slices.Contains(r.values, value)
		}
		if ok == r.negated {
			return false
		}
	}
	return true
}
