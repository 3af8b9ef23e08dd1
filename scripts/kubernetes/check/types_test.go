package check

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/types"
)

// TestFiles reads every file as it is written, before kustomize has merged it: a merge drops what it does not know.
func TestFiles(t *testing.T) {
	documents := 0
	for _, folder := range []string{"kubernetes/base", "kubernetes/overlays"} {
		must(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" || entry.Name() == "carryover.yaml" || entry.Name() == "names.yaml" {
				return err
			}
			for _, document := range bytes.Split(read(t, path), []byte("\n---\n")) {
				documents++
				if err := strictly(entry.Name(), document); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
			return nil
		}))
	}
	if documents < 20 {
		t.Errorf("%d documents were read; where are the others?", documents)
	}
}

func strictly(name string, document []byte) error {
	if name == "kustomization.yaml" {
		return decode(document, &types.Kustomization{})
	}
	return new(cluster).add(document)
}

func TestFiles_AMistypedFieldIsFound(t *testing.T) {
	for _, document := range []string{
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replica: 2}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: http}]}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {clusterIp: None}",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: x}",
	} {
		if strictly("x.yaml", []byte(document)) == nil {
			t.Errorf("this is accepted:\n%s", document)
		}
	}
}

func TestKustomizations(t *testing.T) {
	for folder, want := range map[string]struct{ deployments, bindings, namespaces int }{
		base:    {4, 1, 0},
		fleet:   {4, 1, 1},
		sidecar: {2, 0, 0},
		scraped: {4, 1, 1},
	} {
		c := open(t, folder)
		if len(c.deployments) != want.deployments || len(c.bindings) != want.bindings || len(c.namespaces) != want.namespaces {
			t.Errorf("%s has %d Deployments, %d RoleBindings and %d Namespaces, want %+v", folder, len(c.deployments), len(c.bindings), len(c.namespaces), want)
		}
		for name, d := range c.deployments {
			if got, want := d.Namespace, strings.Repeat("serving", min(1, len(c.namespaces)+len(folder)-len(base))); got != want {
				t.Errorf("%s: %s is in namespace %q, want %q", folder, name, got, want)
			}
		}
	}
}
