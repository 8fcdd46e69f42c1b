package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/duration"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/principal"
	"github.com/everonce/everonce/httponce"
)

// The kinds of values, as flags take them. None repeats in its errors what it was given: it may be a
// secret in the wrong place.

type text string

func (t *text) Set(s string) error { *t = text(s); return nil }
func (t *text) String() string     { return string(*t) }
func (*text) Type() string         { return "text" }

type truth bool

func (t *truth) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("must be true or false")
	}
	*t = truth(b)
	return nil
}
func (t *truth) String() string { return strconv.FormatBool(bool(*t)) }
func (*truth) Type() string     { return "bool" }

type count int

func (n *count) Set(s string) error {
	v, err := strconv.Atoi(s)
	if err != nil || v < 1 {
		return errors.New("must be a number of at least 1")
	}
	*n = count(v)
	return nil
}
func (n *count) String() string { return strconv.Itoa(int(*n)) }
func (*count) Type() string     { return "number" }

// term is a duration without which nothing would work, or which the library would take for its default.
type term time.Duration

func (d *term) Set(s string) error {
	var v duration.Value
	if err := v.Set(s); err != nil {
		return err
	}
	if v == 0 {
		return errors.New("must be a duration above 0")
	}
	*d = term(v)
	return nil
}
func (d *term) String() string { return (*duration.Value)(d).String() }
func (*term) Type() string     { return (*duration.Value)(nil).Type() }

// size is a number of bytes.
type size int64

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

func (n *size) Set(s string) error {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || v < 1 || v > math.MaxInt64/u.bytes {
			break
		}
		*n = size(v * u.bytes)
		return nil
	}
	return errors.New("must be a size like 65536, 64KiB, 8MiB or 1GiB")
}

func (n *size) String() string {
	for _, u := range units[:3] {
		if v := int64(*n); v >= u.bytes && v%u.bytes == 0 {
			return strconv.FormatInt(v/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*n), 10)
}
func (*size) Type() string { return "size" }

// The kinds of values that are several.
const (
	kindList  = "list"
	kindPairs = "pairs"
)

// list is separated by commas, which none of its elements holds.
type list []string

func (l *list) Set(s string) error {
	*l = nil
	for _, e := range strings.Split(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			*l = append(*l, e)
		}
	}
	return nil
}
func (l *list) String() string { return strings.Join(*l, ",") }
func (*list) Type() string     { return kindList }

// choice is one of a few values, each named by its text.
type choice[T any] struct {
	at    *T
	among []T
}

func (c *choice[T]) Set(s string) error {
	words := c.Words()
	i := slices.Index(words, s)
	if i < 0 {
		return errors.New("must be " + alternatives(words))
	}
	*c.at = c.among[i]
	return nil
}
func (c *choice[T]) String() string { return fmt.Sprint(*c.at) }
func (c *choice[T]) Words() (words []string) {
	for _, v := range c.among {
		words = append(words, fmt.Sprint(v))
	}
	return words
}
func (*choice[T]) Type() string { return "word" }

func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// pattern is a regular expression.
type pattern string

func (p *pattern) Set(s string) error {
	if _, err := compileWhole(s); err != nil {
		var wrong *syntax.Error // its text repeats the expression
		if errors.As(err, &wrong) {
			return fmt.Errorf("must be a regular expression in RE2 syntax: %s", wrong.Code)
		}
		return errors.New("must be a regular expression in RE2 syntax")
	}
	*p = pattern(s)
	return nil
}
func (p *pattern) String() string { return string(*p) }
func (*pattern) Type() string     { return "pattern" }

// compileWhole returns what matches a text that an expression matches from its beginning to its end.
func compileWhole(expression string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(expression); err != nil { // alone: "a)(?:b" is invalid
		return nil, err
	}
	return regexp.Compile(`\A(?:` + expression + `)\z`)
}

// keyCheck returns what is asked about each key; nil where every key will do.
func keyCheck(expression string) func(key string) error {
	if expression == "" {
		return nil
	}
	whole, err := compileWhole(expression)
	if err != nil { // pattern has checked it
		panic("config: key-pattern: " + err.Error())
	}
	refused := errors.New("it must match " + expression)
	return func(key string) error {
		if !whole.MatchString(key) {
			return refused
		}
		return nil
	}
}

// principalText names where a request's principal is found.
type principalText string

func (p *principalText) Set(s string) error {
	if _, err := principal.New(s, nil, false); err != nil {
		return err
	}
	*p = principalText(s)
	return nil
}
func (p *principalText) String() string { return string(*p) }
func (*principalText) Type() string     { return "principal" }

// endings are what becomes of a key, by status.
type endings httponce.Save

var endingNames = []httponce.Ending{httponce.Saved, httponce.Released, httponce.Unknown}

func (e *endings) Set(s string) error {
	*e = endings{}
	var pairs list
	_ = pairs.Set(s) //nolint:errcheck // a list takes everything
	for _, pair := range pairs {
		status, word, ok := strings.Cut(pair, "=")
		i := slices.IndexFunc(endingNames, func(e httponce.Ending) bool { return e.String() == word })
		if !ok || i < 0 {
			return errors.New("must be pairs like 409=released: saved, released or unknown")
		}
		(*e)[status] = endingNames[i]
	}
	return nil
}

func (e *endings) String() string {
	pairs := make([]string, 0, len(*e))
	for status, ending := range *e {
		pairs = append(pairs, fmt.Sprintf("%s=%s", status, ending))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}
func (*endings) Type() string { return kindPairs }
