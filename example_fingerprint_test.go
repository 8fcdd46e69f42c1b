package everonce_test

import (
	"fmt"

	"github.com/everonce/everonce"
)

// A request that is a struct, or a body as it arrived, is compared whole. Its white space does not count;
// the order of a body's fields does.
func ExampleFingerprintJSON() {
	type charge struct {
		Amount   int    `json:"amount"`
		Currency string `json:"currency"`
	}
	saved := everonce.FingerprintJSON(charge{1250, "EUR"})
	for _, body := range []string{
		`{ "amount": 1250, "currency": "EUR" }`,
		`{"currency":"EUR","amount":1250}`,
		`{"amount":9999,"currency":"EUR"}`,
	} {
		fmt.Println(everonce.FingerprintJSON([]byte(body)) == saved)
	}
	// Output:
	// true
	// false
	// false
}
