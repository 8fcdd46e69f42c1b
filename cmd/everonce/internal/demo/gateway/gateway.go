// Package gateway is the demo's e-mail gateway: a program of somebody else's, outside of every
// transaction, with a ledger of its own. It sends whatever it is given, and sends twice what it is
// given twice.
package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// How long the gateway takes: until a mail is as good as sent, and from then until it says so. A sender
// that is gone in the first part has sent nothing; one that is gone in the second will never know.
const (
	accepting = 15 * time.Millisecond
	answering = 30 * time.Millisecond
)

// Gateway accepts mails (POST /mails) and tells how many it is working on (GET /busy).
type Gateway struct {
	mux       http.ServeMux
	accepting time.Duration

	mu     sync.Mutex
	ledger *Ledger
	sent   int
	busy   int
}

// New returns a gateway that writes into ledger.
func New(ledger *Ledger) *Gateway {
	g := &Gateway{ledger: ledger, accepting: accepting}
	g.mux.HandleFunc("POST /mails", g.send)
	g.mux.HandleFunc("GET /busy", g.tellBusy)
	return g
}

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mux.ServeHTTP(w, r)
}

func (g *Gateway) send(w http.ResponseWriter, r *http.Request) {
	g.count(1)
	defer g.count(-1)
	var mail payment.Mail
	body, err := io.ReadAll(r.Body) // to its end: only then the server notices a sender that hangs up
	if err == nil {
		err = json.Unmarshal(body, &mail)
	}
	if err != nil {
		http.Error(w, "not a mail", http.StatusBadRequest)
		return
	}
	accepted := time.NewTimer(g.accepting)
	defer accepted.Stop()
	select {
	case <-accepted.C:
	case <-r.Context().Done(): // the sender hung up before it had said everything
		return
	}
	id, err := g.write(mail)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	time.Sleep(answering)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(payment.Sent{ID: id}) //nolint:errcheck,errchkjson // a sender that is gone learns nothing
}

// write enters a mail in the ledger: from here on it is sent.
func (g *Gateway) write(mail payment.Mail) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := fmt.Sprintf("mail-%06d", g.sent+1)
	if err := g.ledger.append(Entry{ID: id, Mail: mail}); err != nil {
		return "", err
	}
	g.sent++
	return id, nil
}

func (g *Gateway) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy += n
}

func (g *Gateway) tellBusy(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	busy := g.busy
	g.mu.Unlock()
	_, _ = w.Write([]byte(strconv.Itoa(busy))) //nolint:errcheck // the asker is gone
}
