// Package page tests the page for operators in headless Chromium, in front of the program as it is built (bin/carryover). It drives
// the browser over its debugging pipe, and needs nothing but it. What the page looked like is in bin/screens afterwards.
package page
