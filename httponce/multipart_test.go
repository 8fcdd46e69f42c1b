package httponce_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// The files of a form that a handler has read are removed, as net/http removes those of its own requests.
func TestFormFilesAreRemoved(t *testing.T) {
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
	h := protected(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(10); err != nil {
			t.Error(err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("the form is not on the disk: %v, %v", files, err)
		}
	})
	r := httptest.NewRequest(http.MethodPost, "/", &form)
	r.Header.Set("Content-Type", m.FormDataContentType())
	r.Header.Set("Idempotency-Key", "k")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v are left, %v", files, err)
	}
}
