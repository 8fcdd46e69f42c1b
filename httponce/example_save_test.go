package httponce_test

import (
	"fmt"

	"github.com/everonce/everonce/httponce"
)

// A service whose 409 says "try again later", and whose 503 is sent before anything was done.
func ExampleSave() {
	save := httponce.DefaultSave()
	fmt.Println(save["4xx"], save["429"], save["5xx"])

	save["409"] = httponce.Released
	save["503"] = httponce.Released
	opts := httponce.Options{Route: httponce.Route{Save: save}}
	fmt.Println(opts.Save["409"], opts.Save["503"])
	// Output:
	// saved released unknown
	// released released
}
