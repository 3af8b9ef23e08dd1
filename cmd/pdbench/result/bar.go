package result

import (
	"errors"
	"fmt"
)

// Bar is a limit for a value of a report's row, and the value.
type Bar struct {
	Row, What string
	Got, Want float64
	Most      bool // Want is the most, otherwise the least
}

// Least is a bar that holds from want on.
func Least(row, what string, got, want float64) Bar {
	return Bar{Row: row, What: what, Got: got, Want: want}
}

// Most is a bar that holds up to want.
func Most(row, what string, got, want float64) Bar {
	return Bar{Row: row, What: what, Got: got, Want: want, Most: true}
}

// Holds reports whether the value is within the limit.
func (b Bar) Holds() bool {
	if b.Most {
		return b.Got <= b.Want
	}
	return b.Got >= b.Want
}

// String returns one line for people.
func (b Bar) String() string {
	verdict, bound := "FAILS", "at least"
	if b.Holds() {
		verdict = "holds"
	}
	if b.Most {
		bound = "at most"
	}
	return fmt.Sprintf("%s  %s: %s is %.4g, %s %.4g", verdict, b.Row, b.What, b.Got, bound, b.Want)
}

// Failing joins the bars that do not hold into an error, nil for none.
func Failing(bars []Bar) error {
	var errs []error
	for _, b := range bars {
		if !b.Holds() {
			errs = append(errs, errors.New(b.String()))
		}
	}
	return errors.Join(errs...)
}

// Share returns a part of a whole, 0 for an empty whole.
func Share(part, whole int) float64 { return float64(part) / float64(max(whole, 1)) }
