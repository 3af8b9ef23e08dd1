package server

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"carryover/server/apierror"
	"carryover/server/suggest"
)

// endpoints lists the paths that the server serves.
type endpoints struct {
	methods map[string][]string // HTTP methods by path
	listed  []string            // "METHOD path" for people, in the order in which they were added
}

func (e *endpoints) add(method, path string) {
	e.methods[path] = append(e.methods[path], method)
	if path != "/" {
		e.listed = append(e.listed, method+" "+path)
	}
}

const (
	whatThisIs = "Multi-turn proxy for disaggregated (prefill and decode) vLLM"
	// forOperators does not give the address of the listener: clients need not know it.
	forOperators = "The page for operators, metrics and recent turns are at the admin listener (--admin-listen)."
)

// welcome answers GET and HEAD / with the program's name and its endpoints: in JSON, or in text for browsers and other clients that ask for
// text.
func (e *endpoints) welcome(version string) echo.HandlerFunc {
	type answer struct {
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Version     string   `json:"version"`
		Endpoints   []string `json:"endpoints"`
		Operators   string   `json:"operators"`
	}
	return func(c echo.Context) error {
		c.Response().Header().Set("Vary", "Accept")
		if !wantsText(c.Request().Header.Values("Accept")) {
			body, err := json.Marshal(answer{"carryover", whatThisIs + " (Carryover)", version, e.listed, forOperators})
			if err != nil { // only strings in there
				return err
			}
			return c.Blob(http.StatusOK, "application/json", append(body, '\n'))
		}
		text := "Carryover " + version + "\n" + whatThisIs + "\n\nServed here:\n  " + strings.Join(e.listed, "\n  ") + "\n\n" + forOperators + "\n"
		return c.Blob(http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	}
}

// wantsText reports whether an Accept header names a kind of text before JSON. A weight is respected only if it is zero, which forbids the
// type (RFC 9110, 12.5.1): browsers put text/html first.
func wantsText(accept []string) bool {
	for _, header := range accept {
		for item := range strings.SplitSeq(header, ",") {
			media, parameters, err := mime.ParseMediaType(item)
			if err != nil || strings.Trim(parameters["q"], "0.") == "" && parameters["q"] != "" {
				continue
			}
			switch media {
			case "text/html", "text/plain", "text/*":
				return true
			case "application/json":
				return false
			}
		}
	}
	return false
}

// unknown returns the error for a path that is not served. It lists the served endpoints, and the one that the client may have meant.
func (e *endpoints) unknown(path string) *apierror.Error {
	message := "Unknown endpoint."
	if meant := e.meant(path); meant != "" {
		message += " Did you mean " + meant + "?"
	}
	message += " Served are " + strings.Join(e.listed, ", ") + "."
	if path == "/metrics" || path == "/admin" || strings.HasPrefix(path, "/admin/") {
		message += " " + forOperators
	}
	return apierror.Refused(http.StatusNotFound, "not_found", message)
}

// meant returns the endpoint that a wrong path may stand for. The path has the endpoint's end, for example because a base URL lacks its /v1
// or has it twice, or it is spelled nearly the same.
func (e *endpoints) meant(path string) string {
	parts := slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" })
	path = "/" + strings.Join(parts, "/")
	best, longest := "", 0
	paths := make([]string, len(e.listed))
	for i, listed := range e.listed {
		_, paths[i], _ = strings.Cut(listed, " ")
		if tail := strings.TrimPrefix(paths[i], "/v1"); len(tail) > longest && strings.HasSuffix(path, tail) {
			best, longest = listed, len(tail)
		}
	}
	if near := suggest.Nearest(path, paths); best == "" && near != "" {
		best = e.listed[slices.Index(paths, near)]
	}
	return best
}
