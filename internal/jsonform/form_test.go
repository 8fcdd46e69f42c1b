package jsonform

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// processors are those that there were when the package began: go test -cpu changes their number.
var processors = runtime.GOMAXPROCS(0)

// A large document takes much memory, so only as many of them are compared at a time as there are processors. A small
// document is compared without waiting.
func TestFewLargeDocumentsAreComparedAtATime(t *testing.T) {
	if cap(largeForms) != processors {
		t.Errorf("%d at a time, on %d processors", cap(largeForms), processors)
	}
	defer func(all chan struct{}) { largeForms = all }(largeForms)
	synctest.Test(t, func(t *testing.T) {
		largeForms = make(chan struct{}, 1) // of this test's
		largeForms <- struct{}{}
		form, err := New(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var compared atomic.Int32
		sum := func(size int64) {
			text := []byte(`"` + strings.Repeat("x", int(size)-2) + `"`)
			if _, ok, err := form.Sum(size, func() ([]byte, error) { return text, nil }); !ok || err != nil {
				t.Error(ok, err)
			}
			compared.Add(1)
		}
		go sum(64<<10 + 1)
		go sum(64<<10 + 1)
		sum(64 << 10)
		synctest.Wait()
		if n := compared.Load(); n != 1 {
			t.Errorf("%d were compared while another one was, want the small one, which does not wait", n)
		}
		<-largeForms
		synctest.Wait()
		if n := compared.Load(); n != 3 {
			t.Errorf("%d were compared in the end, want 3", n)
		}
	})
}
