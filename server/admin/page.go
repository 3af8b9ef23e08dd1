package admin

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"time"
)

// pageFiles are the files of the page for operators, sent to browsers as they are.
//
//go:embed page
var pageFiles embed.FS

// contentPolicy lets the page load its own files and send requests to this listener, and nothing else. Text can't become markup or script:
// that would need a policy of trusted types, which the page may not create.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; frame-ancestors 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageFile is a file of the page as it is sent.
type pageFile struct {
	name, kind, tag string
	text            []byte
}

// newPage returns a handler that serves the files of the page, and 404 for everything else.
func newPage() http.Handler {
	files := map[string]pageFile{}
	entries, err := pageFiles.ReadDir("page")
	if err != nil {
		panic(err) // can't happen: the folder is embedded in the program
	}
	for _, entry := range entries {
		text, err := pageFiles.ReadFile(path.Join("page", entry.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		files["/page/"+entry.Name()] = pageFile{entry.Name(), kindOf(entry.Name()), `"` + hex.EncodeToString(sum[:8]) + `"`, text}
	}
	files["/"] = files["/page/index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, ok := files[r.URL.Path]
		if !ok {
			refuse(w, http.StatusNotFound, "not_found", "The page has no such file.")
			return
		}
		header := w.Header()
		header.Set("Content-Type", file.kind)
		header.Set("Content-Security-Policy", contentPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache") // the next version of the program may have another page
		header.Set("ETag", file.tag)
		http.ServeContent(w, r, file.name, time.Time{}, bytes.NewReader(file.text))
	})
}

// kindOf returns the media type of a file. The machine's own tables may give .js a type that browsers do not run.
func kindOf(name string) string {
	switch {
	case strings.HasSuffix(name, ".js"):
		return "text/javascript; charset=utf-8"
	case strings.HasSuffix(name, ".css"):
		return "text/css; charset=utf-8"
	}
	return "text/html; charset=utf-8"
}
