package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// payment is what a request asks for: 200 bytes of JSON.
type payment struct {
	Order    string `json:"order"`
	Account  string `json:"account"`
	Payee    string `json:"payee"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Text     string `json:"text"`
}

// paid is what is answered: 200 bytes of JSON.
type paid struct {
	ID      string  `json:"id"`
	Status  string  `json:"status"`
	Payment payment `json:"payment"`
}

var samplePayment = payment{
	Order: "order-0123456789", Account: "DE02120300000000202051", Payee: "Example Stationery Ltd, Birmingham",
	Amount: 4200, Currency: "EUR", Text: "Invoice 2026-1107, thank you for your custom!",
}

// sampleRequest is the payment as it is sent.
var sampleRequest = func() []byte {
	body, err := json.Marshal(samplePayment)
	if err != nil {
		panic(err) // it cannot fail
	}
	return body
}()

// answerOf is the work of every handler here.
func answerOf(p payment) paid {
	p.Text, p.Payee = "", ""
	return paid{ID: "p-0123456789abcdef0123456789abcdef", Status: "accepted for execution", Payment: p}
}

// pay is the bare handler: what a service in Go does without us.
func pay(w http.ResponseWriter, r *http.Request) {
	var p payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(w).Encode(answerOf(p)); err != nil {
		panic(err) // the writers here do not fail
	}
}

// httpKey is the n-th key, as long as a UUID, which is the least that the peer takes.
func httpKey(n int64) string { return fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", n) }

const keyLen = 36

// take is the bare handler of a body of any size: it reads it.
func take(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(sampleBytes) //nolint:errcheck // the writers here do not fail
}

// wire makes the bytes of a request, and of the next one with another key.
type wire struct {
	raw []byte
	key int // where the key begins
}

func newWire(host string, body []byte) *wire {
	head := "POST /payments HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: bench\r\nAuthorization: Bearer 0123456789abcdef\r\n" +
		"Accept: application/json\r\nContent-Type: application/json\r\nIdempotency-Key: "
	return &wire{
		raw: fmt.Appendf(nil, "%s%s\r\nContent-Length: %d\r\n\r\n%s", head, httpKey(0), len(body), body),
		key: len(head),
	}
}

// with returns the request with a key. It is valid until the next call.
func (w *wire) with(key string) []byte {
	copy(w.raw[w.key:w.key+keyLen], key)
	return w.raw
}

// exchange is a server without a network: it parses a request, as net/http's does, calls a handler, and keeps
// what is answered. Its reader, and the room for the answer, are used again, as a connection's are.
type exchange struct {
	wire   *wire
	bytes  bytes.Reader
	reader *bufio.Reader

	header http.Header
	status int
	body   []byte
}

func newExchange(body []byte) *exchange {
	x := &exchange{wire: newWire("pay.example", body), header: http.Header{}}
	x.reader = bufio.NewReader(&x.bytes)
	return x
}

// Header, WriteHeader and Write make it an http.ResponseWriter.
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader keeps the status.
func (x *exchange) WriteHeader(status int) { x.status = status }

// Write keeps the body.
func (x *exchange) Write(p []byte) (int, error) {
	x.body = append(x.body, p...)
	return len(p), nil
}

// do is one request, whose answer must be marked as replayed, or not.
func (x *exchange) do(h http.Handler, key string, replayed bool) error {
	x.bytes.Reset(x.wire.with(key))
	x.reader.Reset(&x.bytes)
	r, err := http.ReadRequest(x.reader)
	if err != nil {
		return err
	}
	clear(x.header)
	x.status, x.body = 0, x.body[:0]
	h.ServeHTTP(x, r)
	if x.status != http.StatusCreated || len(x.body) == 0 {
		return fmt.Errorf("the answer is %d: %s", x.status, x.body)
	}
	if got := x.header.Get("Idempotent-Replayed") != ""; got != replayed {
		return fmt.Errorf("replayed is %v, want %v", got, replayed)
	}
	return nil
}
