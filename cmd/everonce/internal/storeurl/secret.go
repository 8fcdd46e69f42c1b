package storeurl

import (
	"net/url"
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
		for _, part := range strings.FieldsFunc(secret, func(r rune) bool { return strings.ContainsRune("/?#:@&;=,", r) }) {
			add(part)
		}
	}
	_, rest, _ := strings.Cut(text, "://")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			divided(password)
		}
	}
	_, query, _ := strings.Cut(rest, "?")
	pairs := strings.Split(query, "&")
	for _, pair := range append(pairs, strings.Split(query, ";")...) { // by which MongoDB's reader divides them too
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasSuffix(strings.ToLower(name), "password") {
			divided(value)
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return len(b) - len(a) }) // a part of another one goes after it
	return found
}
