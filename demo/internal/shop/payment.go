// Package shop is the business that the demo disturbs: a payment service, an e-mail gateway, a proxy, and the audit of
// their ledgers.
package shop

// Payment is one payment, as the client sends it: again and again, until it has a final answer.
type Payment struct {
	// Key is chosen before the first delivery. Each delivery has it in the header Idempotency-Key.
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

// Mail is what the service gives the e-mail gateway to send.
type Mail struct {
	// ID is the gateway's number of the mail.
	ID string `json:"id,omitempty"`
	// Key is the sender's name for this mail. The gateway writes it down but, like most of its kind, sends whatever it is
	// given.
	Key     string `json:"key"`
	Order   string `json:"order"`
	Account string `json:"account"`
	Subject string `json:"subject"`
}

// ReceiptMail tells the customer of a payment.
func ReceiptMail(p Payment, key string) Mail {
	return Mail{Key: key, Order: p.Order, Account: p.Account, Subject: "Your payment for " + p.Order}
}
