// Package client sends HTTP requests under an idempotency key, and repeats each with the same key until it has an
// answer: [Transport] is an [net/http.RoundTripper] for an [net/http.Client].
//
// It works with any service that takes an Idempotency-Key, and imports neither the server nor a store.
package client
