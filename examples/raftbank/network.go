package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// network is what is between the processes: a way from each node to each other, and one from the clients to each node. Its
// ends stay where they are when a node comes back elsewhere.
type network struct {
	peers map[[2]string]*toxiproxy.Proxy // from, to
	front map[string]*toxiproxy.Proxy
	doors []string // where clients reach the nodes, in the order of their names
}

func newNetwork() (*network, error) {
	n := &network{peers: map[[2]string]*toxiproxy.Proxy{}, front: map[string]*toxiproxy.Proxy{}}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	open := func(name string) (*toxiproxy.Proxy, error) {
		p := toxiproxy.NewProxy(server, name, anywhere, nowhere)
		return p, p.Start()
	}
	var errs []error
	for _, to := range names {
		var err error
		n.front[to], err = open("to " + to)
		errs = append(errs, err)
		n.doors = append(n.doors, n.front[to].Listen)
		for _, from := range names {
			if from != to {
				n.peers[[2]string{from, to}], err = open(from + " to " + to)
				errs = append(errs, err)
			}
		}
	}
	return n, errors.Join(errs...)
}

// nowhere is where nobody listens.
const nowhere = "127.0.0.1:1"

func (n *network) close() {
	for _, p := range n.peers {
		p.Stop()
	}
	for _, p := range n.front {
		p.Stop()
	}
}

// from returns where a node's ways to the others begin.
func (n *network) from(name string) map[string]string {
	begin := map[string]string{}
	for _, to := range names {
		if to != name {
			begin[to] = n.peers[[2]string{name, to}].Listen
		}
	}
	return begin
}

// lead leads the ways to a node that has started.
func (n *network) lead(p *process) error {
	to := func(way *toxiproxy.Proxy, upstream string) error {
		return way.Update(&toxiproxy.Proxy{Listen: way.Listen, Upstream: upstream, Enabled: true})
	}
	err := to(n.front[p.Name], p.clients)
	for pair, way := range n.peers {
		if pair[1] == p.Name {
			err = errors.Join(err, to(way, p.peers))
		}
	}
	return err
}

// cutOff cuts a node off from the others: what either side sends is swallowed, or answered by a reset.
func (n *network) cutOff(name, how string) (heal func() error, err error) {
	var ways []*toxiproxy.Proxy
	for pair, way := range n.peers {
		if pair[0] == name || pair[1] == name {
			ways = append(ways, way)
		}
	}
	return poison(ways, how, "upstream", "downstream")
}

// hush has nothing come back from a node to clients.
func (n *network) hush(name, how string) (heal func() error, err error) {
	return poison([]*toxiproxy.Proxy{n.front[name]}, how, "downstream")
}

// The ways to cut a connection, as toxiproxy names them.
const (
	swallow = "timeout"
	reset   = "reset_peer"
)

func poison(ways []*toxiproxy.Proxy, how string, streams ...string) (heal func() error, err error) {
	for _, way := range ways {
		for _, stream := range streams {
			text := fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"attributes":{"timeout":0}}`, stream, how, stream)
			_, addErr := way.Toxics.AddToxicJson(strings.NewReader(text))
			err = errors.Join(err, addErr)
		}
	}
	return func() (err error) {
		for _, way := range ways {
			for _, stream := range streams {
				err = errors.Join(err, way.Toxics.RemoveToxic(context.Background(), stream))
			}
		}
		return err
	}, err
}
