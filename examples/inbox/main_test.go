package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const want = `
m-1 is taken in, new: true
m-1 is taken in, new: false
m-2 is taken in, new: true
m-3 is taken in, new: true
m-4 is taken in, new: true
2 invoices of 2000 cents
m-3 order.placed blocked undecodable: inbox: the body's JSON does not fit the payload
m-4 order.returned pending 
`

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "billing.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
