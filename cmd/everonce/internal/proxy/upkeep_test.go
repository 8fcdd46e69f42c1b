package proxy

import (
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Of its store a proxy shows what is unknown, and removes what is over, from its start on: nobody else would, and what is unknown waits for
// somebody who is told of it.
func TestUpkeepOfTheStore(t *testing.T) {
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "proxy.db")
	service := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	before := start(t, service, store, "--retention=1ms", "--remember=0s")
	send(t, "POST", before.url+"/", "", "Idempotency-Key", "over")
	send(t, "POST", before.url+"/fails", "", "Idempotency-Key", "unknown")
	before.stop()
	<-before.ended

	p := start(t, service, store)
	for _, want := range []string{`everonce_records{state="abandoned"} 1`, `everonce_records{state="completed"} 0`, "everonce_purged_records_total 1"} {
		for text := ""; !strings.Contains(text, "\n"+want+"\n"); runtime.Gosched() {
			_, text = send(t, "GET", p.admin+"/metrics", "")
		}
	}
}
