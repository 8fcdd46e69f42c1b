package httponce_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
)

// The files of a form that a handler has read are removed, as net/http does for its own requests: also for an
// unprotected request.
func TestFormFilesAreRemoved(t *testing.T) {
	t.Run("protected", func(t *testing.T) { formFilesAreRemoved(t, false, false) })
	t.Run("the store is down", func(t *testing.T) { formFilesAreRemoved(t, true, false) })
	t.Run("in a transaction", func(t *testing.T) { formFilesAreRemoved(t, false, true) })
}

func formFilesAreRemoved(t *testing.T, down, tx bool) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, err := m.CreateFormFile("f", "name")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(make([]byte, 10_000))
	m.Close()
	s := setup{opts: openRoute(), handle: func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(10); err != nil {
			t.Error(err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("the form is not on the disk: %v, %v", files, err)
		}
	}}
	if tx {
		s.opts, s.handleTx = httponce.Options{}, func(w http.ResponseWriter, r *http.Request, _ *mapdb.Tx) error {
			s.handle(w, r)
			return nil
		}
	}
	svc := newService(t, s)
	if down {
		svc.fail(everything)
	}
	r := httptest.NewRequest(http.MethodPost, "/", &form)
	r.Header.Set("Content-Type", m.FormDataContentType())
	r.Header.Set("Idempotency-Key", "k")
	svc.ServeHTTP(httptest.NewRecorder(), r)
	if svc.ran() != 1 || svc.last().FailedOpen != down {
		t.Errorf("the handler was called %d times, Observe got %+v", svc.ran(), svc.last())
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v are left, %v", files, err)
	}
}
