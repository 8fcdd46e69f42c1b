package config

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

// YAML returns the configuration as a file would have it, without secrets. Of a route it has what differs from the
// rest.
func (c *Config) YAML() ([]byte, error) {
	shown := *c
	shown.Store, shown.Upstream = storeurl.Shown(c.Store), storeurl.ShownUpstream(c.Upstream)
	root := mappingNode()
	for _, f := range fields {
		add(root, f.Key, f.bind(&shown, &shown.Route).String(), f.bind(&shown, &shown.Route).Type())
	}
	if len(c.Routes) > 0 {
		routes := mappingNode()
		patterns := make([]string, 0, len(c.Routes))
		for pattern := range c.Routes {
			patterns = append(patterns, pattern)
		}
		slices.Sort(patterns)
		for _, pattern := range patterns {
			r, settings := c.Routes[pattern], mappingNode()
			for _, f := range fields {
				if v := f.bind(&shown, &r); f.Route && v.String() != f.bind(&shown, &shown.Route).String() {
					add(settings, f.Key, v.String(), v.Type())
				}
			}
			routes.Content = append(routes.Content, textNode(pattern, "text"), settings)
		}
		root.Content = append(root.Content, textNode(routesKey, "text"), routes)
	}
	return yaml.Marshal(root)
}

func mappingNode() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

func add(m *yaml.Node, key, value, kind string) {
	m.Content = append(m.Content, textNode(key, "text"), textNode(value, kind))
}

// textNode returns a scalar; numbers and truths need no quotation marks.
func textNode(value, kind string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value, Tag: "!!str"}
	switch kind {
	case "bool":
		n.Tag = "!!bool"
	case "number":
		n.Tag = "!!int"
	}
	return n
}
