package demo

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// milestone is an output that tells when a text has come up in it.
type milestone struct {
	mu      sync.Mutex
	text    []byte
	said    bytes.Buffer
	reached chan struct{}
	once    sync.Once
}

func newMilestone(text string) *milestone {
	return &milestone{text: []byte(text), reached: make(chan struct{})}
}

func (m *milestone) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.said.Write(p)
	if bytes.Contains(m.said.Bytes(), m.text) {
		m.once.Do(func() { close(m.reached) })
	}
	return n, err
}

// await waits for the text.
func (m *milestone) await(t *testing.T) {
	t.Helper()
	select {
	case <-m.reached:
	case <-time.After(3 * time.Minute): // it may have ended
		t.Fatalf("it never said %q:\n%s", m.text, m)
	}
}

func (m *milestone) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said.String()
}
