package drivertest

import (
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
)

// memory is a model of one key that forgets nothing and knows nothing of how a store decides: only what
// may never happen, whatever the calls.
type memory struct {
	tokens map[driver.Token]driver.Nonce // every token that was ever granted
	newest driver.Token
	done   *driver.CompleteRequest // the completion that was accepted last
	until  time.Time               // its retention does not end before
}

// decided checks the answer to a claim.
func (m *memory) decided(req driver.ClaimRequest, res driver.ClaimResult) error {
	switch res.Decision {
	case driver.DecideClaimed:
		return m.granted(req, res)
	case driver.DecideReplay:
		if m.done == nil {
			return fmt.Errorf("a result is replayed, and none was ever saved")
		}
		if res.Record.Token != m.done.Token || string(res.Record.Result.Data) != string(m.done.Result.Data) {
			return fmt.Errorf("the result of token %d is replayed, want the one of token %d", res.Record.Token, m.done.Token)
		}
	}
	return nil
}

func (m *memory) granted(req driver.ClaimRequest, res driver.ClaimResult) error {
	token := res.Record.Token
	by, known := m.tokens[token]
	switch {
	case known && (by != req.Nonce || token != m.newest):
		return fmt.Errorf("token %d is granted a second time", token)
	case !known && token <= m.newest:
		return fmt.Errorf("token %d is granted after %d", token, m.newest)
	case m.done != nil && res.Now.Before(m.until):
		return fmt.Errorf("token %d is granted while the result of token %d is kept", token, m.done.Token)
	}
	if m.tokens == nil {
		m.tokens = make(map[driver.Token]driver.Nonce)
	}
	m.tokens[token], m.newest = req.Nonce, token
	if !known {
		m.done = nil
	}
	return nil
}

// completed checks a completion that was accepted; it was sent after a time of the store's.
func (m *memory) completed(req driver.CompleteRequest, after time.Time) error {
	if err := m.wrote(req.Token); err != nil {
		return err
	}
	if m.tokens[req.Token] != req.Nonce {
		return fmt.Errorf("token %d is accepted from a nonce that it was not granted to", req.Token)
	}
	if m.done == nil {
		m.done, m.until = &req, after.Add(req.Lifetime.Retention)
	}
	return nil
}

// wrote checks that an accepted write is by the newest attempt.
func (m *memory) wrote(token driver.Token) error {
	if token != m.newest {
		return fmt.Errorf("a write of token %d is accepted, after %d was granted", token, m.newest)
	}
	return nil
}
