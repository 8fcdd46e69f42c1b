package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// network is what is between the processes: a way from each node to each other, and one from the clients to each node.
// It also has the sockets at which nodes listen, for peers and for clients, so that a node that comes back is where it
// was.
type network struct {
	peers   map[[2]string]*toxiproxy.Proxy // from, to
	front   map[string]*toxiproxy.Proxy
	doors   []string // where clients reach the nodes, in the order of their names
	sockets map[string][]*os.File
}

// newNetwork opens all connections. The caller must close them, after an error too.
func newNetwork(ctx context.Context) (*network, error) {
	n := &network{peers: map[[2]string]*toxiproxy.Proxy{}, front: map[string]*toxiproxy.Proxy{}, sockets: map[string][]*os.File{}}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	for _, to := range names {
		var at [2]string
		for i := range at {
			var lc net.ListenConfig
			ln, err := lc.Listen(ctx, "tcp", anywhere)
			if err != nil {
				return n, err
			}
			socket, err := ln.(*net.TCPListener).File()
			if err := errors.Join(err, ln.Close()); err != nil { // the socket stays open
				return n, err
			}
			at[i], n.sockets[to] = ln.Addr().String(), append(n.sockets[to], socket)
		}
		n.front[to] = toxiproxy.NewProxy(server, "to "+to, anywhere, at[1])
		if err := n.front[to].Start(); err != nil {
			return n, err
		}
		n.doors = append(n.doors, n.front[to].Listen)
		for _, from := range names {
			if from == to {
				continue
			}
			way := toxiproxy.NewProxy(server, from+" to "+to, anywhere, at[0])
			n.peers[[2]string{from, to}] = way
			if err := way.Start(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (n *network) close() {
	for _, p := range n.peers {
		p.Stop()
	}
	for _, p := range n.front {
		p.Stop()
	}
	for _, sockets := range n.sockets {
		for _, s := range sockets {
			s.Close() //nolint:errcheck // the process ends
		}
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
