package shop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// How long the gateway takes: until a mail is as good as sent, and from then until it says so. A sender
// that is gone in the first part has sent nothing; one that is gone in the second will never know.
const (
	accepting = 15 * time.Millisecond
	answering = 30 * time.Millisecond
)

// Gateway is the e-mail gateway: an external program, outside of every transaction, with its own ledger. It accepts
// mails, and sends a mail twice if it gets it twice.
type Gateway struct {
	accepting time.Duration

	mu     sync.Mutex
	ledger *os.File // a line for every mail that was sent
	sent   int
}

// OpenGateway opens the gateway, which writes its ledger to a file.
func OpenGateway(ledger string) (*Gateway, error) {
	f, err := os.OpenFile(ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the demo's own file
	return &Gateway{accepting: accepting, ledger: f}, err
}

// Close closes the ledger.
func (g *Gateway) Close() error { return g.ledger.Close() }

// ServeHTTP takes a mail, and answers its number.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var mail Mail
	body, err := io.ReadAll(r.Body) // to its end: only then the server notices a sender that hangs up
	if err == nil {
		err = json.Unmarshal(body, &mail)
	}
	if err != nil {
		http.Error(w, "not a mail", http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(g.accepting):
	case <-r.Context().Done(): // the sender hung up before the mail was accepted
		return
	}
	id, err := g.send(mail)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	time.Sleep(answering)
	_, _ = io.WriteString(w, id) //nolint:errcheck // a sender that is gone learns nothing
}

// send enters a mail in the ledger: from here on it is sent.
func (g *Gateway) send(mail Mail) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mail.ID = fmt.Sprintf("mail-%06d", g.sent+1)
	line, err := json.Marshal(mail)
	if err != nil {
		return "", err
	}
	if _, err := g.ledger.Write(append(line, '\n')); err != nil {
		return "", err
	}
	g.sent++
	return mail.ID, nil
}

// ReadMails returns the numbers of the mails in a gateway's ledger, by order, as they were sent.
func ReadMails(ledger string) (map[string][]string, error) {
	f, err := os.Open(ledger) //nolint:gosec // the demo's own file
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	sent := make(map[string][]string)
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var m Mail
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("the gateway's ledger, line %d: %w", n, err)
		}
		sent[m.Order] = append(sent[m.Order], m.ID)
	}
	return sent, lines.Err()
}

// Mailer sends mails through a gateway.
type Mailer struct {
	url  string
	http http.Client
}

// NewMailer returns a mailer of the gateway at an address, host and port.
func NewMailer(gateway string) *Mailer {
	return &Mailer{url: "http://" + gateway, http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// Send hands a mail over and returns its number. An error does not say whether it was sent.
func (m *Mailer) Send(ctx context.Context, mail Mail) (string, error) {
	body, err := json.Marshal(mail)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	res, err := m.http.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	id, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the gateway answers %s", res.Status)
	}
	return string(id), err
}
