package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
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
var ErrEmpty = errors.New("its value is empty: leave the flag out, or say in the file that there is none")

// Set keeps the last value, and of what has several all. An empty one is that of a variable of the shell which is not
// set: read as "none" it would take a protection away without a word.
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

// source is where a setting comes from.
type source func(path string) string

// Load merges the sources. fs has the flags that were given, environ is [os.Environ]'s, of which what is empty
// counts as not set; path may be empty. strangers are
// variables that begin as ours do and are no setting. The error wraps [ErrInvalid], or is of the file that
// cannot be read.
func Load(fs *pflag.FlagSet, environ []string, path string) (c *Config, strangers []string, err error) {
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool { // empty is not set
		_, value, _ := strings.Cut(v, "=")
		return isEmpty(value)
	})
	k := koanf.New(pathSeparator)
	defaults := map[string]any{}
	for _, f := range fields {
		defaults[f.Key] = f.Default
	}
	if err := k.Load(confmap.Provider(defaults, pathSeparator), nil); err != nil {
		return nil, nil, err
	}
	p := &fileParser{name: path, lines: map[string]int{}}
	if path != "" {
		if err := k.Load(file.Provider(path), p); err != nil {
			return nil, nil, err
		}
	}
	variables, strangers := ours(environ)
	if err := k.Load(env.Provider(pathSeparator, env.Opt{
		Prefix: EnvPrefix, EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) { return variables[name], value },
	}), nil); err != nil {
		return nil, nil, err
	}
	if err := k.Load(posflag.ProviderWithFlag(fs, pathSeparator, k, func(f *pflag.Flag) (string, any) {
		if g, ok := f.Value.(*given); ok && f.Changed {
			return f.Name, g.text
		}
		return "", nil
	}), nil); err != nil {
		return nil, nil, err
	}
	c, err = read(k, func(path string) string {
		key, _, _ := strings.Cut(path, pathSeparator)
		field, _ := fieldOf(key)
		switch {
		case fs.Changed(key):
			return "--" + key
		case slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, field.Env()+"=") }):
			return field.Env()
		}
		return fmt.Sprintf("%s:%d: %s", p.name, p.lines[path], path[strings.LastIndex(path, pathSeparator)+1:])
	})
	return c, strangers, err
}

// ours returns the keys of environment variables, by their names, and the names of those that are like ours and no setting.
func ours(environ []string) (keys map[string]string, strangers []string) {
	keys = map[string]string{}
	for _, f := range fields {
		keys[f.Env()] = f.Key
	}
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := keys[name]; !ok && strings.HasPrefix(name, EnvPrefix) && name != EnvPrefix+"CONFIG" {
			strangers = append(strangers, name)
		}
	}
	return keys, strangers
}

// read reads what was merged.
func read(k *koanf.Koanf, from source) (*Config, error) {
	c := &Config{}
	for _, f := range fields {
		if err := f.bind(c, &c.Route).Set(k.String(f.Key)); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, from(f.Key), err)
		}
	}
	patterns := k.MapKeys(routesKey)
	for _, pattern := range patterns {
		r := c.Route
		for _, f := range fields {
			path := strings.Join([]string{routesKey, pattern, f.Key}, pathSeparator)
			if !f.Route || !k.Exists(path) {
				continue
			}
			if err := f.bind(c, &r).Set(k.String(path)); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, from(path), err)
			}
		}
		if c.Routes == nil {
			c.Routes = map[string]Route{}
		}
		c.Routes[pattern] = r
	}
	return c, nil
}
