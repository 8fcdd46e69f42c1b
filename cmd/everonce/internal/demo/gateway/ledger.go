package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// Entry is one mail that was sent.
type Entry struct {
	ID string `json:"id"`
	payment.Mail
}

// Ledger is a file with a line for every mail that was sent.
type Ledger struct{ file *os.File }

// OpenLedger opens the ledger for writing, or begins one.
func OpenLedger(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the demo's own file
	if err != nil {
		return nil, err
	}
	return &Ledger{file: f}, nil
}

func (l *Ledger) append(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }

// ReadLedger returns all that is in a ledger, in the order of sending.
func ReadLedger(path string) ([]Entry, error) {
	f, err := os.Open(path) //nolint:gosec // the demo's own file
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	var entries []Entry
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("the gateway's ledger, line %d: %w", len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}
