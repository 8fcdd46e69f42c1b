package httponce_test

import (
	"encoding/json"
	"fmt"

	"github.com/everonce/everonce/httponce"
)

// A verdict on a request of HTTP, as an operator writes it, is an Answer.
func ExampleAnswer_UnmarshalJSON() {
	var a httponce.Answer
	err := json.Unmarshal([]byte(`{"status":201,"headers":{"location":["/payments/7"]},"body":"paid"}`), &a)
	fmt.Println(a.Status, a.Header, string(a.Body), err)

	err = json.Unmarshal([]byte(`{"code":201}`), &a)
	fmt.Println(err)
	// Output:
	// 201 map[Location:[/payments/7]] paid <nil>
	// httponce: an answer: json: unknown field "code"
}
