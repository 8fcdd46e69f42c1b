package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
{"id":"evt_1","type":"paid","sent":1} 204 
{"id":"evt_1","type":"paid","sent":2} 204 true
{"id":"evt_1","type":"paid","sent":3} 204 true
{"id":"evt_1","type":"refunded","sent":4} 422 
{"id":"evt_2","type":"paid","sent":5} 204 
{"id":"evt_3","type":"paid","sent":6} 401 
{"type":"paid"} 400 
rows: 2
`

// TestKeyOfABody sends events whose key is in their body: sent again, under a key of the client's own, changed, forged,
// without an ID.
func TestKeyOfABody(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
