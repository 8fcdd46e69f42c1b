package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// ledgerService is a service without idempotency keys, in a separate process: every POST is an effect, which it writes
// into its ledger before it answers. Its arguments are an address and the ledger's file.
const ledgerService = "ledgerservice"

func serveLedger() {
	ledger, err := os.OpenFile(os.Args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	srv := &http.Server{Addr: os.Args[1], ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operation, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			http.Error(w, "what?", http.StatusBadRequest)
			return
		}
		effect := fmt.Sprintf("%s %d-%d", operation, os.Getpid(), time.Now().UnixNano())
		if _, err := fmt.Fprintln(ledger, effect); err != nil { // one write: SIGKILL leaves all of it or nothing
			http.Error(w, "no ledger", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, effect)
	})}
	fmt.Fprintln(os.Stderr, srv.ListenAndServe())
	os.Exit(1)
}

// readLedger returns the effects of each operation.
func readLedger(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		operation, _, ok := strings.Cut(line, " ")
		if !ok {
			t.Fatalf("the ledger has the line %q", line)
		}
		effects[operation] = append(effects[operation], line)
	}
	return effects
}
