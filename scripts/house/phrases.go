package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// refusedPhrase finds turns of phrase that make a reader go back: plain English names the thing, and says who does what.
var refusedPhrase = regexp.MustCompile(`(?i)\b(?:of\s+wh(?:ich|om)|th(?:at|ose)\s+of|none\s+may|so\s+many|(?:has|have)\s+(?:it|them|(?:its|their)\s+\w+)\s+released|who\s+takes\s+(?:it|them)|what\s+was\s+handed\s+back)\b`)

// isPage reports whether a file is a page whose words stand in it: docs/reference.md has the words of product code, the changelog those of their time.
func isPage(file string) bool {
	return strings.HasSuffix(file, ".md") && strings.Count(strings.TrimPrefix(file, "docs/"), "/") == 0 && file != "CHANGELOG.md" && file != "docs/reference.md"
}

// phrases refuses turns of phrase: of pages in their text, of Go files in their comments.
func phrases(has func(file string) bool) figure {
	return func(root string) (faults []string, err error) {
		err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, file)
			switch isGo := strings.HasSuffix(name, ".go"); {
			case err != nil:
				return err
			case entry.IsDir() && skipped(entry.Name()) && file != root:
				return filepath.SkipDir
			case entry.IsDir() || !isGo && !strings.HasSuffix(name, ".md") || !has(filepath.ToSlash(name)):
				return nil
			}
			text, err := prose(file)
			for _, phrase := range refusedPhrase.FindAllString(text, -1) {
				faults = append(faults, fmt.Sprintf("%s: %q is not plain English", filepath.ToSlash(name), phrase))
			}
			return err
		})
		return faults, err
	}
}

// prose returns the text of a page, or the comments of a Go file.
func prose(file string) (text string, err error) {
	if strings.HasSuffix(file, ".md") {
		page, err := os.ReadFile(file)
		return string(page), err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err == nil {
		for _, group := range parsed.Comments {
			text += group.Text() + ".\n"
		}
	}
	return text, err
}
