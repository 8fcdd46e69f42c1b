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

// secretsOf returns every secret in the URL of a server, in every form in which it may appear again. The end of a
// password that is not escaped is ambiguous: it may contain an @, or characters that begin a path. So the secret may be
// everything up to the last @, and each part of it that a URL parser would extract.
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

// odd reports a character that some parser escapes or takes for an end. The text between odd characters appears
// unchanged, or not at all.
func odd(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// escape matches a percent-escape in a URL. Another parser may not treat it as one.
var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
