// Package payment holds what the demo's programs say to each other: payments, receipts and mails.
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

// Headers of a payment and of its answer.
const (
	KeyHeader      = "Idempotency-Key"
	ReplayedHeader = "Idempotent-Replayed"
	// Elided is the latter's value where the answer is not known, or too large to be kept.
	Elided = "elided"
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
