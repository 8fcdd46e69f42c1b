package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags adds a flag for every setting.
func AddFlags(fs *pflag.FlagSet) {
	for _, f := range fields {
		var c Config
		v := f.bind(&c, &c.Route)
		if err := v.Set(f.Default); err != nil {
			panic("config: the default of " + f.Key + ": " + err.Error())
		}
		flag := fs.VarPF(&given{Value: v}, f.Key, "", f.Usage)
		flag.DefValue = f.Default
		if v.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// given keeps what was written, to be read after the sources have been merged: so that every source is read alike.
type given struct {
	pflag.Value
	text string
	set  bool
}

// ErrEmpty: a flag was given and has no value.
var ErrEmpty = errors.New("its value is empty (leave the flag out, or set it to none in the file)")

// Set keeps the last value, or all values of a list. It rejects an empty value, such as that from an unset shell
// variable: read as an empty list, it would silently remove a protection.
func (g *given) Set(s string) error {
	if isEmpty(s) {
		return ErrEmpty
	}
	if several := g.Type() == kindList || g.Type() == kindPairs; g.set && several {
		s = g.text + "," + s
	}
	g.text, g.set = s, true
	return nil
}

// isEmpty reports whether a text says nothing, to a list too.
func isEmpty(s string) bool { return strings.Trim(s, ", \t") == "" }

// setting is a value as it was written, and where that was.
type setting struct{ text, from string }

// settings are settings by their keys.
type settings map[string]setting

// Load merges the sources: flags over variables over the file over defaults. fs has the flags that were given, environ
// is [os.Environ]'s, in which an empty variable counts as not set; path may be empty. strangers are variables that
// begin with [EnvPrefix] and are not settings. The error wraps [ErrInvalid], or says that the file cannot be read.
func Load(fs *pflag.FlagSet, environ []string, path string) (c *Config, strangers []string, err error) {
	all := settings{}
	keys := map[string]string{} // by variable
	for _, f := range fields {
		all[f.Key] = setting{f.Default, f.Key}
		keys[f.Env()] = f.Key
	}
	p := &fileParser{name: path}
	if path != "" {
		text, err := os.ReadFile(path) //nolint:gosec // the file that the user named
		if err != nil {
			return nil, nil, err
		}
		given, err := p.read(text)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(all, given)
	}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		key, ok := keys[name]
		switch {
		case isEmpty(value):
		case ok:
			all[key] = setting{value, name}
		case strings.HasPrefix(name, EnvPrefix) && name != EnvPrefix+"CONFIG":
			strangers = append(strangers, name)
		}
	}
	fs.Visit(func(f *pflag.Flag) {
		if g, ok := f.Value.(*given); ok {
			all[f.Name] = setting{g.text, "--" + f.Name}
		}
	})
	c = &Config{}
	if err := all.apply(c, &c.Route); err != nil {
		return nil, strangers, err
	}
	for _, pattern := range slices.Sorted(maps.Keys(p.routes)) {
		r := c.Route
		if err := p.routes[pattern].apply(c, &r); err != nil {
			return nil, strangers, err
		}
		if c.Routes == nil {
			c.Routes = map[string]Route{}
		}
		c.Routes[pattern] = r
	}
	return c, strangers, nil
}

// apply reads the values.
func (s settings) apply(c *Config, r *Route) error {
	for _, f := range fields {
		if v, ok := s[f.Key]; ok {
			if err := f.bind(c, r).Set(v.text); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrInvalid, v.from, err)
			}
		}
	}
	return nil
}
