package rabbitonce_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// relay is a way to the broker: join is called for each connection that is made to url, near, with one to the broker, far. It has to
// close both.
func relay(t *testing.T, brokerURL string, join func(near, far net.Conn)) (url string) {
	t.Helper()
	uri, err := amqp.ParseURI(brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	broker := net.JoinHostPort(uri.Host, fmt.Sprint(uri.Port))
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // of the test
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", broker) //nolint:noctx // of the test
			if err != nil {
				near.Close() //nolint:errcheck // the test fails by it
				continue
			}
			join(near, far)
		}
	}()
	uri.Host, uri.Port = "127.0.0.1", listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one
	return uri.String()
}

// Connections are named, for operators who look at the broker: after the consumer and its queue, or as somebody has said.
func TestConnectionsAreNamed(t *testing.T) {
	t.Parallel()
	for _, given := range []string{"", "billing in the night"} {
		b := newBench(t)
		said := &lines{}
		url := relay(t, b.url, func(near, far net.Conn) {
			pipe := func(to net.Conn, w io.Writer, from net.Conn) {
				defer to.Close()        //nolint:errcheck // the other way ends by it
				_, _ = io.Copy(w, from) //nolint:errcheck // of the test
			}
			go pipe(far, io.MultiWriter(far, said), near)
			go pipe(near, near, far)
		})
		r := b.runOn(memstore.New(nil), url, specOf(nothing), &rabbitonce.Options{Name: given})
		b.send(message("")) // whose copy needs a separate connection
		b.whenBuried(r, 1)
		name := given
		if name == "" {
			name = "billing on " + b.queue.Name
		}
		for _, want := range []string{name + " (consume)", name + " (publish)"} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("no connection is named %q", want)
			}
		}
	}
}
