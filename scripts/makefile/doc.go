// Package makefile holds the Makefile's targets to what people expect of them: what they install, and where.
package makefile
