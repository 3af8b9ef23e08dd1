package template

import (
	"strings"
	"testing"
)

func FuzzPythonJSON_IsStable(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[true,null,"é\n\u0001"]}`, `1e3`, `-0.0`, `1.50`, `[]`, `{}`, `"\ud800"`, `1e400`, `[1,]`, `1 2`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once, err := PythonJSON([]byte(s))
		if err != nil {
			return
		}
		twice, err := PythonJSON([]byte(once))
		if err != nil || once != twice {
			t.Errorf("pythonJSON(%q) = %q, again %q, %v", s, once, twice, err)
		}
	})
}

func TestPythonJSON_WritesLikeJSONDumps(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":{"x":[1,2],"y":"é"}}`:      `{"b": 1, "a": {"x": [1, 2], "y": "é"}}`,
		`{"f":1.50,"e":1e3,"s":1e-7,"l":1e22}`: `{"f": 1.5, "e": 1000.0, "s": 1e-07, "l": 1e+22}`,
		`"\u00e9\u0001\"\\\/\n"`:               `"é\u0001\"\\/\n"`,
		` [ ] `:                                `[]`,
	} {
		if got, err := PythonJSON([]byte(in)); got != want || err != nil {
			t.Errorf("pythonJSON(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{``, `{`, `[1,]`, `1 2`, strings.Repeat("[", 3)} {
		if got, err := PythonJSON([]byte(in)); err == nil {
			t.Errorf("pythonJSON(%s) = %s, want an error", in, got)
		}
	}
}
