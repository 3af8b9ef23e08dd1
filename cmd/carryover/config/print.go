package config

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Marshal writes a file that Load can read, with help text, flag and variable above each value. Redacted secrets are too short to load.
func Marshal(cfg Config) []byte {
	if cfg.Conversation.SecretFile != "" {
		cfg.Conversation.Secret = ""
	}
	if cfg.Admin.TokenFile != "" {
		cfg.Admin.Token = ""
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	section, into := "", root
	for _, s := range Settings(&cfg) {
		if secret, ok := s.To.(*Secret); ok && *secret == "" {
			continue
		}
		key := text(s.Name())
		key.HeadComment = comment(s)
		switch {
		case s.Section() == s.Key:
			into = root
		case s.Section() != section: // the rows of a section follow each other
			into = &yaml.Node{Kind: yaml.MappingNode}
			root.Content = append(root.Content, text(s.Section()), into)
		}
		section = s.Section()
		into.Content = append(into.Content, key, valueNode(s))
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	_ = encoder.Encode(root) // into memory
	_ = encoder.Close()
	return out.Bytes()
}

func comment(s Setting) string {
	var names []string
	if s.Flag != "" {
		names = append(names, "--"+s.Flag)
	}
	if v := s.Variable(); v != "" {
		names = append(names, v)
	}
	if len(names) == 0 {
		names = []string{"file only"}
	}
	return fmt.Sprintf("%s (%s)", s.Usage(), strings.Join(names, ", "))
}

func valueNode(s Setting) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	switch v := s.To.(type) {
	case *[]InstanceConfig:
		for i := range *v {
			n.Content = append(n.Content, instanceNode(s.Key, i, &(*v)[i]))
		}
	case *[]string:
		for _, item := range *v {
			n.Content = append(n.Content, text(item))
		}
	case *string, *Secret, *RedisURL:
		return text(FormatValue(v))
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: FormatValue(v)}
	}
	return n
}

func instanceNode(role string, i int, c *InstanceConfig) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range InstanceSettings(role, i, c) {
		n.Content = append(n.Content, text(s.Name()), valueNode(s))
	}
	return n
}

// text returns a scalar that the encoder quotes if it would read as another type.
func text(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}
