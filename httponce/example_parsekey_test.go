package httponce_test

import (
	"errors"
	"fmt"

	"github.com/everonce/everonce/httponce"
)

// Both spellings of a key are the same key.
func ExampleParseKey() {
	for _, value := range []string{`order-7`, `"order-7"`, `"order-7`, `a, b`} {
		key, err := httponce.ParseKey(value)
		if errors.Is(err, httponce.ErrInvalidKey) {
			fmt.Println(err)
			continue
		}
		fmt.Println(key)
	}
	// Output:
	// order-7
	// order-7
	// httponce: invalid idempotency key: it begins with a quotation mark and is not a structured field string (RFC 9651)
	// httponce: invalid idempotency key: it contains a comma, as several values would: quote a key that contains a comma
}
