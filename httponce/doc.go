// Package httponce gives HTTP services idempotency keys: a request that carries Idempotency-Key takes effect
// once, however often it is sent, and every repetition gets the first answer.
//
//	protect, err := httponce.Middleware(receiver, account, nil)
//	…
//	mux.Handle("POST /payments", protect(pay))
//
// [Middleware] is for handlers whose effect may be anywhere (guarded mode: if nobody knows the outcome of a request,
// the receiver's policy decides). [HandleTx] is for handlers whose effect is in the database of the
// receiver's store (transactional mode: effect and answer commit together, exactly once).
// [Status] tells a client what became of one of its keys, and [Policy] publishes how keys are treated.
// [Transport] is the client's half: one key per operation, the same in all its attempts.
//
// docs/reference/http-answers.md lists the answer to each outcome.
package httponce
