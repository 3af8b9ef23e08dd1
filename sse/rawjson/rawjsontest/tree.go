package rawjsontest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Node is a JSON value as encoding/json reads it: a reader that shares nothing with the package.
type Node struct {
	Kind byte // one of { [ " # t f n
	Text string
	Kids []*Node
	Keys []string // of an object, beside kids
}

// Tree reads one value and nothing behind it.
func Tree(in []byte) (*Node, error) {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	n, err := readNode(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("bytes after the value")
	}
	return n, nil
}

func readNode(d *json.Decoder) (*Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		n := &Node{Kind: byte(v)}
		for d.More() {
			if n.Kind == '{' {
				key, err := d.Token()
				if err != nil {
					return nil, err
				}
				n.Keys = append(n.Keys, key.(string))
			}
			kid, err := readNode(d)
			if err != nil {
				return nil, err
			}
			n.Kids = append(n.Kids, kid)
		}
		_, err := d.Token()
		return n, err
	case string:
		return &Node{Kind: '"', Text: v}, nil
	case json.Number:
		return &Node{Kind: '#', Text: v.String()}, nil
	case bool:
		return &Node{Kind: fmt.Sprint(v)[0]}, nil
	}
	return &Node{Kind: 'n'}, nil
}

// Member returns the named member of an object, nil when there is none.
func (n *Node) Member(name string) *Node {
	if i := slices.Index(n.Keys, name); i >= 0 {
		return n.Kids[i]
	}
	return nil
}
