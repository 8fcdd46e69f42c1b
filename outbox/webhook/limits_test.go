package webhook_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/webhook"
)

// A service says by HTTP/2 how large a request's headers may be. The client sends none that are larger: that is for the
// event, and not for the service.
func TestHeadersThatAreTooLargeForTheService(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })) //nolint:errcheck // it is a test's
	server.Config.MaxHeaderBytes = 8 << 10
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	transport, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("another transport")
	}
	p, err := webhook.New(webhook.Endpoint{URL: server.URL}, &webhook.Options{AllowPrivate: true, TLS: transport.TLSClientConfig})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(size int) error {
		e := outbox.Event{ID: "1", Topic: "a", Payload: []byte("{}"), Headers: map[string]string{"large": strings.Repeat("x", size)}}
		return errors.Join(p.Publish(context.Background(), []outbox.Event{e})...)
	}
	for _, size := range []int{10, 7 << 10, 20 << 10} { // the first answer says how large
		err, refused := publish(size), size > 8<<10
		if _, permanent := errors.AsType[*everonce.PermanentError](err); permanent != refused || errors.Is(err, outbox.ErrUnavailable) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
