// Package httponce gives HTTP services idempotency keys: a request with an Idempotency-Key takes effect once, however
// often it is sent, and every repetition gets the first answer.
//
//	protect, err := httponce.Middleware(receiver, account, nil)
//	…
//	mux.Handle("POST /payments", protect(pay))
//
// Use [Middleware] if the handler's effect may be anywhere (guarded mode: the receiver's policy decides if the outcome
// of a request is unknown). Use [HandleTx] if the effect is in the database of the receiver's store (transactional
// mode: effect and answer commit together, exactly once). [Status] reports the outcome of a key to a client, and
// [Policy] publishes how keys are treated.
//
// Package httponce/client is the client, which repeats a request under one key. Package httponce/proxy passes requests
// on to a service in any language.
//
// docs/reference/http-answers.md lists the answer to each outcome.
package httponce
