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

// size bounds the bytes of a page.
func size(page string, most int) figure {
	return func(root string) ([]string, error) {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		if len(text) <= most {
			return nil, nil
		}
		return []string{fmt.Sprintf("%s: %d bytes, at most %d", page, len(text), most)}, nil
	}
}

// pageSizes bounds the bytes of each page of a folder but one.
func pageSizes(folder string, most int, but string) figure {
	return func(root string) (faults []string, err error) {
		pages, err := filepath.Glob(filepath.Join(root, folder, "*.md"))
		for _, page := range pages {
			if name := filepath.Base(page); name != but && err == nil {
				var found []string
				found, err = size(folder+"/"+name, most)(root)
				faults = append(faults, found...)
			}
		}
		return faults, err
	}
}

// rows bounds the rows of the tables below a heading, as far as the next heading of its level. A page without the heading or without a table
// is a fault.
func rows(page, heading string, most int) figure {
	return func(root string) ([]string, error) {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		_, section, _ := strings.Cut("\n"+string(text), "\n"+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		n := strings.Count(section, "\n|") - 2*strings.Count(section, "\n|--") // each table has a line of names, and one below it
		switch {
		case n < 1:
			return []string{fmt.Sprintf("%s: no table below %q", page, heading)}, nil
		case n > most:
			return []string{fmt.Sprintf("%s: %d rows below %q, at most %d", page, n, heading, most)}, nil
		}
		return nil, nil
	}
}

// comments holds package comments to the files that they name, which stand in their folder.
func comments() figure {
	named := regexp.MustCompile(`(?:^|[ (])([a-z0-9_]+\.(?:go|lua))\b`)
	return func(root string) (faults []string, err error) {
		err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && skipped(entry.Name()) && file != root:
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(entry.Name(), ".go"):
				return nil
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				return err
			}
			for _, match := range named.FindAllStringSubmatch(parsed.Doc.Text(), -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(file), match[1])); err != nil {
					name, _ := filepath.Rel(root, file)
					faults = append(faults, fmt.Sprintf("%s: %s does not exist", filepath.ToSlash(name), match[1]))
				}
			}
			return nil
		})
		return faults, err
	}
}

// skipped reports whether a folder has no code of ours.
func skipped(folder string) bool {
	return strings.HasPrefix(folder, ".") || folder == "testdata" || folder == "node_modules"
}

// targets holds the workflow to what continuous integration runs here: each make target of the script is one of the workflow's, and each
// of either is one of the Makefile's.
func targets(script, workflow string) figure {
	const makefile = "Makefile"
	called := regexp.MustCompile(`(?m)(?:^|run: )make ([a-z0-9-]+(?: [A-Z0-9_]+=[^ \n]+)*)$`)
	return func(root string) (faults []string, err error) {
		text := map[string]string{}
		for _, name := range []string{script, workflow, makefile} {
			data, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				return nil, err
			}
			text[name] = string(data)
		}
		for _, match := range called.FindAllStringSubmatch(text[script], -1) {
			called := strings.TrimSuffix(match[1], " E2E_SHORT=1") // the workflow, which has the night, runs it in full
			// In the workflow a call stands behind "run: make", or in a matrix: by itself, or in a list.
			listed := regexp.MustCompile(`(?m)(?:- |run: make |[\[ ,])` + regexp.QuoteMeta(called) + `(?:$|[,\]])`)
			if !listed.MatchString(text[workflow]) {
				faults = append(faults, fmt.Sprintf("%s: %s runs make %s, which is missing", workflow, script, called))
			}
		}
		for _, name := range []string{script, workflow} {
			for _, match := range called.FindAllStringSubmatch(text[name], -1) {
				target, _, _ := strings.Cut(match[1], " ")
				if !strings.Contains("\n"+text[makefile], "\n"+target+":") {
					faults = append(faults, fmt.Sprintf("%s: make %s, which the %s does not have", name, target, makefile))
				}
			}
		}
		return faults, nil
	}
}
