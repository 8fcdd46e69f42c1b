package rabbitonce_test

import (
	"fmt"
	"net"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
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
