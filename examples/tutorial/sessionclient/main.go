// Command sessionclient sends a hundred charges to the payment service, eight at a time, in one session.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/client"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:8080", "where the service is")
	flag.Parse()
	if err := send(context.Background(), *url); err != nil {
		log.Fatal(err)
	}
}

func send(ctx context.Context, url string) error {
	session, err := client.NewSession(url+"/sessions", nil, &client.SessionOptions{
		Options: client.Options{MaxAttempts: 1000},
	})
	if err != nil {
		return err
	}
	sender := &http.Client{Transport: session} // no Timeout: it would hide that an outcome is unknown; see client.Options.MaxElapsed

	var done, unknown atomic.Int64
	var senders sync.WaitGroup
	orders := make(chan int)
	for range 8 {
		senders.Go(func() {
			for order := range orders {
				err := charge(ctx, sender, url, order)
				switch {
				case err == nil:
					done.Add(1)
				case errors.Is(err, everonce.ErrOutcomeUnknown): // never send it again: ask what became of it
					unknown.Add(1)
					fallthrough
				default:
					log.Printf("pay-%d: %v", order, err)
				}
			}
		})
	}
	for order := range 100 {
		orders <- order
	}
	close(orders)
	senders.Wait()
	fmt.Printf("%d charged, %d unknown\n", done.Load(), unknown.Load())
	return session.Close(ctx)
}

func charge(ctx context.Context, sender *http.Client, url string, order int) error {
	body := strings.NewReader(fmt.Sprintf(`{"order":"pay-%d","account":"alice","cents":10}`, order))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charge", body)
	if err != nil {
		return err
	}
	res, err := sender.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it is only read
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		log.Printf("pay-%d: charged, but the receipt is not complete: %v", order, err)
	}
	return nil
}
