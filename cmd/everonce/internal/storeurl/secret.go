package storeurl

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// minSecret is the length from which on a text is not found in another by chance.
const minSecret = 3

// secretsOf returns all that is secret in the URL of a server, in every form in which it may come up again. Where a password ends that is
// not escaped nobody knows: one with an @, say, or with what begins a path. So it may be all up to the last @, and each part of that which a
// reader of URLs would take out.
func secretsOf(text string) (found []string) {
	add := func(secret string) {
		plain, err := url.QueryUnescape(secret)
		if err != nil {
			plain = secret
		}
		path, err := url.PathUnescape(secret)
		if err != nil {
			path = secret
		}
		for _, form := range []string{secret, plain, path, url.QueryEscape(plain), url.PathEscape(plain), url.QueryEscape(path), url.PathEscape(path)} {
			quoted := strconv.Quote(form)
			for _, form := range []string{form, quoted[1 : len(quoted)-1]} {
				if len(form) >= minSecret && !slices.Contains(found, form) {
					found = append(found, form)
				}
			}
		}
	}
	divided := func(secret string) {
		add(secret)
		meant := escape.ReplaceAllStringFunc(secret, func(escape string) string {
			plain, _ := url.PathUnescape(escape) //nolint:errcheck // the pattern has found an escape
			return plain
		})
		for _, form := range []string{secret, meant} {
			for _, part := range strings.FieldsFunc(form, odd) {
				add(part)
			}
		}
	}
	_, rest, _ := strings.Cut(text, "://")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			divided(password)
		}
	}
	for _, value := range passwordValue.FindAllStringSubmatch(rest, -1) {
		divided(value[1])
	}
	slices.SortStableFunc(found, func(a, b string) int { return len(b) - len(a) }) // a part of another one goes after it
	return found
}

// passwordValue is the value of a parameter that is called a password, wherever in the URL that stands.
var passwordValue = regexp.MustCompile(`(?i)password=([^&]*)`)

// odd are the characters that one reader or another escapes, or takes for an end. What is between them is told as it is, or not at all.
func odd(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// escape is one in a URL, in which others may be none.
var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
