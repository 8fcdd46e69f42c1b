package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileParser reads YAML as koanf takes it: a tree of texts. It refuses what is no setting, and remembers where
// each one stands.
type fileParser struct {
	name  string
	lines map[string]int // by path
}

// pathSeparator is in no key and no pattern.
const pathSeparator = "\x00"

// null is the tag of what has no value.
const null = "!!null"

// routesKey is where the file has its routes.
const routesKey = "routes"

// Unmarshal is of koanf.Parser.
func (p *fileParser) Unmarshal(b []byte) (map[string]any, error) {
	var doc, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(b))
	err := documents.Decode(&doc)
	if err == nil {
		if err = documents.Decode(&second); err == nil {
			return nil, p.errorf(second.Content[0], "a second document begins here, and a file may have one")
		}
	}
	if !errors.Is(err, io.EOF) {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.HasSuffix(text, "mapping values are not allowed in this context") { // store: memory:
			text += " (a value that has a colon at its end, or before a space, needs quotes)"
		}
		return nil, fmt.Errorf("%w: %s: %s", ErrInvalid, p.name, text)
	}
	if len(doc.Content) == 0 {
		return map[string]any{}, nil
	}
	return p.mapping(doc.Content[0], "", func(key string) bool { return isField(key) || key == routesKey })
}

// Marshal is of koanf.Parser.
func (p *fileParser) Marshal(m map[string]any) ([]byte, error) { return yaml.Marshal(m) }

func (p *fileParser) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%w: %s:%d: %s", ErrInvalid, p.name, n.Line, fmt.Sprintf(format, args...))
}

// mapping reads a mapping of settings.
func (p *fileParser) mapping(n *yaml.Node, above string, known func(string) bool) (map[string]any, error) {
	n = behindAlias(n)
	if n.Tag == null {
		return map[string]any{}, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, p.errorf(n, "settings are expected here, like %q", "key: value")
	}
	m := map[string]any{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		_, twice := m[key.Value]
		switch {
		case key.Value == "<<":
			return nil, p.errorf(key, "merging of mappings (<<) is not supported")
		case !known(key.Value) && isField(key.Value):
			return nil, p.errorf(key, "%q is a setting of the whole proxy, not of a route", key.Value)
		case !known(key.Value):
			return nil, p.errorf(key, "unknown key %q", key.Value)
		case twice:
			return nil, p.errorf(key, "%q appears twice", key.Value)
		case behindAlias(value).Tag == null: // forgotten, perhaps: none at all could be no protection at all
			return nil, p.errorf(key, `%q has no value: leave it out for its default, or write [] or "" for none`, key.Value)
		}
		path := above + key.Value
		p.lines[path] = key.Line
		var err error
		if above == "" && key.Value == routesKey {
			m[key.Value], err = p.routes(value)
		} else {
			m[key.Value], err = p.value(key.Value, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// routes reads the settings of each route.
func (p *fileParser) routes(n *yaml.Node) (map[string]any, error) {
	n = behindAlias(n)
	if n.Kind != yaml.MappingNode {
		return nil, p.errorf(n, "routes must be settings by pattern")
	}
	m := map[string]any{}
	for i := 0; i < len(n.Content); i += 2 {
		pattern, value := n.Content[i], n.Content[i+1]
		if _, twice := m[pattern.Value]; twice {
			return nil, p.errorf(pattern, "the route %q appears twice", pattern.Value)
		}
		path := routesKey + pathSeparator + pattern.Value
		p.lines[path] = pattern.Line
		settings, err := p.mapping(value, path+pathSeparator, func(key string) bool { f, _ := fieldOf(key); return f.Route })
		if err != nil {
			return nil, err
		}
		m[pattern.Value] = settings
	}
	return m, nil
}

// value reads a setting as it would be written on the command line. What is empty is that for every kind of setting.
func (p *fileParser) value(key string, n *yaml.Node) (string, error) {
	n = behindAlias(n)
	f, _ := fieldOf(key)
	kind := f.kind()
	switch {
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case len(n.Content) > 0 && kind != kindList && kind != kindPairs: // [a-z] is a list of one, whose text is no class of letters any more
		return "", p.errorf(n, "%q takes one value: a text that begins with a bracket needs quotes", key)
	case n.Kind == yaml.MappingNode && len(n.Content) > 0 && kind != kindPairs:
		return "", p.errorf(n, "%q takes a list, like [a, b]", key)
	}
	switch n.Kind {
	case yaml.SequenceNode:
		var elements []string
		for _, e := range n.Content {
			if e = behindAlias(e); e.Kind != yaml.ScalarNode || e.Tag == null || strings.Contains(e.Value, ",") {
				return "", p.errorf(e, "an element of a list must be a text without a comma")
			}
			elements = append(elements, e.Value)
		}
		return strings.Join(elements, ","), nil
	case yaml.MappingNode:
		var pairs []string
		for i := 0; i < len(n.Content); i += 2 {
			pairs = append(pairs, n.Content[i].Value+"="+behindAlias(n.Content[i+1]).Value)
		}
		return strings.Join(pairs, ","), nil
	}
	return "", p.errorf(n, "a value is expected here")
}

func behindAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isField(key string) bool { _, ok := fieldOf(key); return ok }

// fieldOf returns the setting of a key.
func fieldOf(key string) (Field, bool) {
	for _, f := range fields {
		if f.Key == key {
			return f, true
		}
	}
	return Field{}, false
}
