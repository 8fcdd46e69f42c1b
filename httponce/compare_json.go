package httponce

import (
	"mime"
	"net/http"
	"strings"

	"github.com/everonce/everonce/internal/jsonform"
)

// jsonForm returns the parts of a JSON body that are compared, or nil if it is compared byte for byte.
func (f *Compare) jsonForm() (*jsonform.Form, error) {
	if !f.JSON && f.JSONOnly == nil && f.JSONExcept == nil {
		return nil, nil
	}
	return jsonform.New(f.JSONOnly, f.JSONExcept)
}

// isJSON reports whether a request says that its body is JSON.
func isJSON(h http.Header) bool {
	values := h["Content-Type"]
	if len(values) != 1 {
		return false
	}
	if values[0] == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii")
}
