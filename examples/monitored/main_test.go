package main

import (
	"strings"
	"testing"
)

const want = `
everonce_duplicates_total{kind="do"} 1
everonce_http_requests_total{http_response_status_code="200",http_route="/charges",outcome="executed"} 1
everonce_http_requests_total{http_response_status_code="200",http_route="/charges",outcome="replayed"} 1
everonce_http_requests_total{http_response_status_code="400",http_route="/charges",outcome="refused"} 1
everonce_http_requests_total{http_response_status_code="409",http_route="/broken",outcome="unknown"} 1
everonce_http_requests_total{http_response_status_code="500",http_route="/broken",outcome="unknown"} 1
everonce_records{state="abandoned"} 1
everonce_records{state="completed"} 1
`

// TestRun sends requests, and compares what was counted.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}
