package proxy

import (
	"regexp"
	"strings"

	"github.com/everonce/everonce"
)

// settings are what the library calls otherwise.
var settings = map[string]string{
	"Compare.Headers":        "compare-headers",
	"Compare.JSONExcept":     "compare-json-except",
	"Compare.JSONOnly":       "compare-json-only",
	"Header":                 "allow-headers or deny-headers",
	"JSONExcept":             "compare-json-except",
	"JSONOnly":               "compare-json-only",
	"KeyHeader":              "key-header",
	"KeyJSON":                "key-json",
	"Lease":                  "lease",
	"Lifetime":               "route",
	"Marker":                 "marker",
	"MaxBody":                "max-body",
	"MaxBodyMemory":          "max-body-memory",
	"MaxSpool":               "max-spool",
	"Methods":                "methods",
	"Options.Collection":     "table-prefix",
	"Options.IdentitySecret": "identity-secret-file",
	"Options.KeyPrefix":      "table-prefix",
	"ProblemBase":            "problem-base",
	"Profile":                "profile",
	"Remember":               "remember",
	"Retention":              "retention",
	"Save":                   "save",
}

// words are what such a name may be, and what is quoted, which is the user's own.
var words = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[A-Za-z]+(?:\.[A-Za-z]+)*`)

// packages begin the library's errors.
var packages = regexp.MustCompile(`^(?:dynamostore|httponce|mongostore|redisstore): `)

// inSettings rewrites a text of the library for the operator: it replaces the names of options by names of settings,
// and drops the names of packages and errors.
func inSettings(text string) string {
	text = packages.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, everonce.ErrInvalidArgument.Error()+": ", "")
	return words.ReplaceAllStringFunc(text, func(word string) string {
		if name, ok := settings[word]; ok {
			return name
		}
		return word
	})
}
