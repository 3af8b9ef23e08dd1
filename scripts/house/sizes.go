package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// part is a part of the repository's Go code, the most tokens that it may have, and the most files, 0 for any number. Tokens measure what a reader has to hold in mind: neither
// longer lines nor more files, neither embedding nor splitting changes their number.
type part struct {
	name  string
	most  int
	files int
	has   func(file string) bool
}

// parts are those of this repository. A figure may be lowered, and is never raised.
func parts() []part {
	return []part{
		{"product", 258_500, 302, isProduct},
		{"turns, reuse and pins", 34_000, 0, isCore},
		{"tests", 635_000, 0, isTest},
		{"simulator and benchmark tool", 94_400, 0, isBench},
	}
}

// mostLines bounds a file that is not a test.
const mostLines = 350

// isTest reports whether a file is a test, or lies in a folder that only tests import: one named like testing's own, net/http/httptest.
func isTest(file string) bool {
	folder := path.Dir(file)
	return strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(file, "scripts/") && (strings.HasSuffix(folder, "test") || path.Base(folder) == "testrig")
}

// isBench reports whether a file belongs to the simulated engines or to the benchmark tool.
func isBench(file string) bool {
	return !isTest(file) && (strings.HasPrefix(file, "cmd/pdbench/") || strings.HasPrefix(file, "upstream/vllmsim/"))
}

// isProduct reports whether a file belongs to the program that users run.
func isProduct(file string) bool {
	return !isTest(file) && !isBench(file) && !strings.HasPrefix(file, "scripts/")
}

// isCore reports whether a file belongs to the packages that decide what becomes of a ticket.
func isCore(file string) bool {
	switch path.Dir(file) {
	case "server/turn", "server/reuse", "server/pins", "server/record", "server/quarantine":
		return isProduct(file)
	}
	return false
}

// sizes bounds the tokens and files of each part, and the lines of each file that is not a test.
func sizes(all []part, lines int) figure {
	return func(root string) (faults []string, err error) {
		sums, files := make([]int, len(all)), make([]int, len(all))
		err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && file != root && skipped(entry.Name()):
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(file, ".go"):
				return nil
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			name = filepath.ToSlash(name)
			if n := bytes.Count(text, []byte("\n")); n > lines && !isTest(name) {
				faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d", name, n, lines))
			}
			n, err := tokens(name, text)
			for i, p := range all {
				if p.has(name) {
					sums[i] += n
					files[i]++
				}
			}
			return err
		})
		for i, p := range all {
			if sums[i] > p.most {
				faults = append(faults, fmt.Sprintf("%s: %d tokens, at most %d", p.name, sums[i], p.most))
			}
			if p.files > 0 && files[i] > p.files {
				faults = append(faults, fmt.Sprintf("%s: %d files, at most %d", p.name, files[i], p.files))
			}
		}
		return faults, err
	}
}

// tokens counts the tokens of a Go file without comments and semicolons, which the scanner puts at most ends of lines.
func tokens(name string, text []byte) (n int, err error) {
	var faults scanner.ErrorList
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(name, -1, len(text)), text, faults.Add, 0)
	for {
		switch _, tok, _ := s.Scan(); tok {
		case token.EOF:
			return n, faults.Err()
		case token.SEMICOLON:
		default:
			n++
		}
	}
}
