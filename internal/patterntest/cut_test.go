package patterntest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/everonce/everonce/outbox"
)

// Of two relays one is cut off from the database when it has published a batch, and has not marked it. The other
// publishes what is left, and that batch once more, with the same IDs, unless the mark arrived all the same. Nothing is
// lost, and each key keeps its order. When the line is mended the first relay goes on.
func TestARelayIsCutOff(t *testing.T) {
	t.Parallel()
	for _, cut := range []struct {
		name, way string // the direction that swallows; empty: all connections end, and new ones fail
		mayMark   bool
	}{
		{name: "no connection"},
		{name: "half open, requests are swallowed", way: "upstream"},
		{name: "half open, answers are swallowed", way: "downstream", mayMark: true},
	} {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			server, schema := schema(t)
			near := pgxHandle(t, server, schema)
			near.ready(t)
			wire, far := throughProxy(t, server)
			box, to := newOutbox(t, near), newArrivals()
			const keys, each, batch = 4, 10, 7
			for k := range keys {
				near.publish(t, box, line("orders", fmt.Sprint("k", k), each)...)
			}

			published, skipFailed, told := make(chan []outbox.Event, 1), make(chan struct{}), make(chan outbox.Report, 10*batch)
			stops := outbox.PublisherFunc(func(ctx context.Context, events []outbox.Event) []error {
				errs := to.publisher().Publish(ctx, events)
				select {
				case <-skipFailed:
				default:
					published <- events
					<-skipFailed
				}
				return errs
			})
			relaying(t, newOutbox(t, pgxHandle(t, far, schema)), stops, &outbox.RelayOptions{
				Batch: batch, InFlight: 2 * batch, Lease: 500 * time.Millisecond, Poll: 20 * time.Millisecond,
				Observe: func(_ context.Context, _ *outbox.Event, v outbox.Report) { told <- v },
			})
			inHand := <-published
			mend := cutOff(t, wire, cut.way)
			close(skipFailed)
			stop := relaying(t, box, to.publisher(), nil)
			for range inHand {
				if v := <-told; v.How != outbox.Lost {
					t.Errorf("the relay that is cut off says %v", v.How)
				}
			}
			must(t, to.await(t.Context(), keys*each))
			near.settled(t, box)
			stop()
			mend()

			near.publish(t, box, outbox.Event{ID: "last", Topic: "orders", Key: "k0", Payload: fmt.Append(nil, each+1)})
			must(t, to.await(t.Context(), keys*each+1)) // by the relay that was cut off
			near.settled(t, box)
			n, again, err := to.distinct()
			if n != keys*each+1 || again > len(inHand) || again < len(inHand) && !cut.mayMark || err != nil {
				t.Errorf("%d events came, and %d again, of %d that were claimed: %v", n, again, len(inHand), err)
			}
			for _, e := range inHand {
				if n := to.count[e.ID]; n > 2 || n < 2 && !cut.mayMark {
					t.Errorf("%s, which was claimed, came %d times", e.ID, n)
				}
			}
		})
	}
}

// throughProxy returns a line to a server that can be cut, and the URL through it.
func throughProxy(t *testing.T, server string) (p *toxiproxy.Proxy, through string) {
	t.Helper()
	u, err := url.Parse(server)
	must(t, err)
	p = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "p", "127.0.0.1:0", u.Host)
	must(t, p.Start())
	t.Cleanup(p.Stop)
	u.Host = p.Listen
	return p, u.String()
}

// cutOff cuts a line, or has it swallow what goes one way, until it is mended.
func cutOff(t *testing.T, p *toxiproxy.Proxy, way string) (mend func()) {
	t.Helper()
	if way == "" {
		p.Stop()
		return func() { must(t, p.Start()) }
	}
	_, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":"cut","type":"timeout","stream":%q,"attributes":{"timeout":0}}`, way)))
	must(t, err)
	return func() { must(t, p.Toxics.RemoveToxic(context.WithoutCancel(t.Context()), "cut")) }
}
