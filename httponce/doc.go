// Package httponce gives HTTP services idempotency keys: a request that carries Idempotency-Key takes effect
// once, however often it is sent, and every repetition gets the first answer.
//
//	protect, err := httponce.Middleware(receiver, account, nil)
//	…
//	mux.Handle("POST /payments", protect(pay))
//
// [Middleware] is for handlers whose effect is anywhere (guarded mode: what happens to a request whose outcome
// nobody knows is the receiver's policy). [HandleTx] is for handlers whose effect is in the database of the
// receiver's store (transactional mode: effect and answer commit together, exactly once).
// [Status] tells a client what became of a key of its own, and [Policy] publishes how keys are treated.
// [Transport] is the client's half: one key per operation, over all its attempts.
//
// What each outcome is answered is in docs/reference/http-answers.md.
package httponce
