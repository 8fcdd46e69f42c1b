// Package payment holds what the demo's programs say to each other: payments, receipts, refusals and mails.
package payment

// Payment is one payment, as the client sends it: again and again, until it has a final answer.
type Payment struct {
	// Key is chosen before the first delivery and goes with every one, in the header [KeyHeader].
	Key     string `json:"-"`
	Order   string `json:"order"`
	Account string `json:"account"`
	// Amount is in cents.
	Amount int64 `json:"amount"`
}

// Receipt is the final answer to a payment.
type Receipt struct {
	Order string `json:"order"`
	// Charge is the charge's number in the service's ledger, Mail the mail's in the gateway's.
	Charge int64  `json:"charge"`
	Mail   string `json:"mail"`
}

// Refusal is an answer that is not final.
type Refusal struct {
	// Code is CodeInProgress, CodeUnknown or CodeFailed.
	Code    string `json:"code"`
	Message string `json:"message"`
	// RetryAfter says when to come back, in milliseconds.
	RetryAfter int64 `json:"retry_after_ms,omitempty"`
}

// The codes of a refusal.
const (
	// CodeInProgress: another delivery of the payment is being worked on.
	CodeInProgress = "in_progress"
	// CodeUnknown: nobody knows whether a part of it happened. It is of no use to come back before
	// somebody has settled that.
	CodeUnknown = "outcome_unknown"
	// CodeFailed: it did not work out. Come back.
	CodeFailed = "failed"
)

// Headers of the payment service.
const (
	KeyHeader      = "Idempotency-Key"
	ReplayedHeader = "Idempotency-Replayed"
)

// Mail is what the service gives the e-mail gateway to send.
type Mail struct {
	// Key is the sender's name for this mail. The gateway writes it down, and does not look at it: like
	// most of its kind it sends whatever it is given.
	Key     string `json:"key"`
	Order   string `json:"order"`
	Account string `json:"account"`
	Subject string `json:"subject"`
}

// Sent is the gateway's answer.
type Sent struct {
	ID string `json:"id"`
}
