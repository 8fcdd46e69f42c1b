package shop

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
	"github.com/everonce/everonce/store/sqlitestore"
)

const (
	// lease is how long a killed process keeps a payment before another may take it over.
	lease = 1500 * time.Millisecond
	// wait is how long a duplicate waits: until it has taken over from a process that was killed.
	wait = lease + 500*time.Millisecond
)

// The steps of a payment.
const (
	stepCharge = "charge"
	StepMail   = "mail"
)

// service is the handler of payments, the same with everonce and without.
type service func(ctx context.Context, p Payment) (Receipt, error)

func (pay service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p Payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, "not a payment", http.StatusBadRequest)
		return
	}
	receipt, err := pay(r.Context(), p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(receipt) //nolint:errcheck,errchkjson // a client that is gone asks again
}

// OpenWithout opens the service without everonce. It pays whenever it is asked to.
func OpenWithout(_ context.Context, books, gateway string) (http.Handler, io.Closer, error) {
	db, err := OpenBooks(books)
	if err != nil {
		return nil, nil, err
	}
	mails := NewMailer(gateway)
	return service(func(ctx context.Context, p Payment) (receipt Receipt, err error) {
		receipt.Order = p.Order
		err = inTx(ctx, db, func(tx *sql.Tx) (err error) {
			receipt.Charge, err = charge(ctx, tx, p)
			return err
		})
		if err == nil {
			receipt.Mail, err = mails.Send(ctx, ReceiptMail(p, p.Order))
		}
		return receipt, err
	}), db, nil
}

// OpenWith opens the service with everonce. It pays once for each key: the charge is a step in the transaction of the
// books, and the mail is a step that is not repeated while it is unknown whether it was sent.
func OpenWith(ctx context.Context, books, gateway string) (http.Handler, io.Closer, error) {
	store, err := sqlitestore.Open(ctx, books, nil)
	if err != nil {
		return nil, nil, err
	}
	opts := &everonce.Options{Lease: lease, EffectsInSteps: true, Owner: "payments:" + strconv.Itoa(os.Getpid())}
	ledger, err := everonce.NewTxReceiver(store, opts)
	if err != nil {
		return nil, nil, err
	}
	mails := NewMailer(gateway)
	return protected(store, everonce.Reexecute, opts, service(func(ctx context.Context, p Payment) (receipt Receipt, err error) {
		a, ok := everonce.AttemptFrom(ctx)
		if !ok {
			return receipt, errors.New("the payment bypassed the middleware")
		}
		receipt.Order = p.Order
		receipt.Charge, err = everonce.StepTx(ctx, a, ledger, stepCharge, func(ctx context.Context, tx *sql.Tx) (int64, error) {
			return charge(ctx, tx, p)
		})
		if err != nil {
			return receipt, err
		}
		receipt.Mail, err = everonce.Step(ctx, a, StepMail, func(ctx context.Context) (string, error) {
			return mails.Send(ctx, ReceiptMail(p, a.DownstreamKey(StepMail)))
		}, everonce.WithPolicy(everonce.Refuse))
		return receipt, err
	}))
}

// OpenProxy opens the proxy in front of a service without everonce. The proxy has its own records.
func OpenProxy(ctx context.Context, records, upstream string) (http.Handler, io.Closer, error) {
	store, err := sqlitestore.Open(ctx, records, nil)
	if err != nil {
		return nil, nil, err
	}
	handler, err := proxy.New(&url.URL{Scheme: "http", Host: upstream}, nil)
	if err != nil {
		return nil, nil, err
	}
	return protected(store, everonce.Refuse, &everonce.Options{Lease: lease}, handler)
}

// protected puts the middleware around a handler.
func protected(store *sqlitestore.Store, policy everonce.Policy, opts *everonce.Options, h http.Handler) (http.Handler, io.Closer, error) {
	receiver, err := everonce.NewReceiver(store, policy, opts)
	if err != nil {
		return nil, nil, err
	}
	middleware, err := httponce.Middleware(receiver, httponce.Unscoped(), &httponce.Options{Route: httponce.Route{Required: true, Wait: wait}})
	if err != nil {
		return nil, nil, err
	}
	return middleware(h), store, nil
}
