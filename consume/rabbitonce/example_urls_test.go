package rabbitonce_test

import (
	"context"
	"fmt"
	"net/url"

	"github.com/everonce/everonce/consume/rabbitonce"
)

// nodes returns what [rabbitonce.Options].URLs takes: the nodes of a cluster, with a password that is asked for each time.
func nodes(password func(context.Context) (string, error)) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		secret, err := password(ctx)
		if err != nil {
			return nil, err // logged; it is asked again after a pause
		}
		var urls []string
		for _, host := range []string{"rabbit-1.example", "rabbit-2.example"} {
			u := url.URL{Scheme: "amqps", User: url.UserPassword("billing", secret), Host: host, Path: "/"}
			urls = append(urls, u.String())
		}
		return urls, nil
	}
}

func ExampleOptions_urls() {
	vault := func(context.Context) (string, error) { return "of today", nil }
	opts := &rabbitonce.Options{URLs: nodes(vault)} // for rabbitonce.Dial, whose own URL is empty then
	fmt.Println(opts.URLs(context.Background()))
	// Output: [amqps://billing:of%20today@rabbit-1.example/ amqps://billing:of%20today@rabbit-2.example/] <nil>
}
