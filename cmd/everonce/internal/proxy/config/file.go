package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileParser reads the settings of a YAML file. It refuses unknown keys.
type fileParser struct {
	name   string
	routes map[string]settings // by pattern
}

// null is the tag of what has no value.
const null = "!!null"

// routesKey is where the file has its routes.
const routesKey = "routes"

// read returns the settings of the whole proxy, and stores the settings of its routes.
func (p *fileParser) read(b []byte) (settings, error) {
	var doc, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(b))
	err := documents.Decode(&doc)
	if err == nil {
		if err = documents.Decode(&second); err == nil {
			return nil, p.errorf(second.Content[0], "a second YAML document starts here (a file may have one)")
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
		return nil, nil
	}
	return p.mapping(doc.Content[0], true)
}

func (p *fileParser) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%w: %s:%d: %s", ErrInvalid, p.name, n.Line, fmt.Sprintf(format, args...))
}

// mapping reads a mapping of settings: of the whole proxy, or of a route.
func (p *fileParser) mapping(n *yaml.Node, whole bool) (settings, error) {
	n = behindAlias(n)
	if n.Tag == null {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, p.errorf(n, "settings are expected here, like %q", "key: value")
	}
	m := settings{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f, known := fieldOf(key.Value)
		isRoutes := whole && key.Value == routesKey
		_, twice := m[key.Value]
		switch {
		case key.Value == "<<":
			return nil, p.errorf(key, "merging of mappings (<<) is not supported")
		case !known && !isRoutes:
			return nil, p.errorf(key, "unknown key %q", key.Value)
		case !whole && !f.Route:
			return nil, p.errorf(key, "%q is a setting of the whole proxy, not of a route", key.Value)
		case twice, isRoutes && p.routes != nil:
			return nil, p.errorf(key, "%q appears twice", key.Value)
		case behindAlias(value).Tag == null: // forgotten, perhaps: none at all could be no protection at all
			return nil, p.errorf(key, `%q has no value: leave it out for its default, or write [] or "" for none`, key.Value)
		}
		if isRoutes {
			if err := p.readRoutes(value); err != nil {
				return nil, err
			}
			continue
		}
		text, err := p.value(f, value)
		if err != nil {
			return nil, err
		}
		m[key.Value] = setting{text, fmt.Sprintf("%s:%d: %s", p.name, key.Line, key.Value)}
	}
	return m, nil
}

// readRoutes reads the settings of each route.
func (p *fileParser) readRoutes(n *yaml.Node) (err error) {
	n = behindAlias(n)
	if n.Kind != yaml.MappingNode {
		return p.errorf(n, "routes must be settings by pattern")
	}
	p.routes = map[string]settings{}
	for i := 0; i < len(n.Content); i += 2 {
		pattern := n.Content[i]
		if _, twice := p.routes[pattern.Value]; twice {
			return p.errorf(pattern, "the route %q appears twice", pattern.Value)
		}
		if p.routes[pattern.Value], err = p.mapping(n.Content[i+1], false); err != nil {
			return err
		}
	}
	return nil
}

// value reads a setting as it would be written on the command line. An empty value is the empty text for every kind of
// setting.
func (p *fileParser) value(f Field, n *yaml.Node) (string, error) {
	n = behindAlias(n)
	kind := f.kind()
	switch {
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case len(n.Content) > 0 && kind != kindList && kind != kindPairs: // [a-z] is a list of one, whose text is no class of letters any more
		return "", p.errorf(n, "%q takes one value: a text that begins with a bracket needs quotes", f.Key)
	case n.Kind == yaml.MappingNode && len(n.Content) > 0 && kind != kindPairs:
		return "", p.errorf(n, "%q takes a list, like [a, b]", f.Key)
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

// fieldOf returns the setting of a key.
func fieldOf(key string) (Field, bool) {
	for _, f := range fields {
		if f.Key == key {
			return f, true
		}
	}
	return Field{}, false
}
