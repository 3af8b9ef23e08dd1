// Command house checks the figures that a stranger's way into the repository depends on: the tokens of product, tests and simulator, the lines of a
// file, the sizes of pages, the rows of the glossary and of the reference, the words that the glossary has replaced, turns of phrase that are hard to
// read, the files that package comments name, and what continuous integration runs. It prints every fault and exits 1 if there is one.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	faults, err := check(".", figures())
	for _, fault := range faults {
		fmt.Println(fault)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || len(faults) > 0 {
		os.Exit(1)
	}
}

// figure is one thing that is checked of the tree at root. The error says that it could not be checked.
type figure func(root string) (faults []string, err error)

// figures are those of this repository.
func figures() []figure {
	return []figure{
		size("README.md", 8<<10), size("ARCHITECTURE.md", 12<<10), pageSizes("docs", 20_000, "reference.md"),
		rows("ARCHITECTURE.md", "## Words", 30),
		rows("docs/reference.md", "## Settings", 75), rows("docs/reference.md", "## Reasons of a miss", 36), rows("docs/reference.md", "## Metrics", 44),
		comments(),
		targets(".ci/run", ".github/workflows/ci.yml"),
		words(replaced()),
		phrases(func(file string) bool {
			return isPage(file) || isProduct(file) && strings.HasSuffix(file, ".go")
		}),
		sizes(parts(), mostLines),
	}
}

func check(root string, all []figure) (faults []string, err error) {
	for _, f := range all {
		found, err := f(root)
		if err != nil {
			return faults, err
		}
		faults = append(faults, found...)
	}
	return faults, nil
}
