package sqlqueue

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/everonce/everonce/driver"
)

// MaxText is the size of the longest text in a column that is looked up, maxHeaders the size of all headers, in bytes.
const (
	MaxText    = 255
	maxHeaders = 64 << 10
)

// Stores reports whether every database can keep a text.
func Stores(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// Text is the value for a column, with the column's name for error messages.
type Text struct{ Name, Is string }

// CheckTexts refuses a text that no column can hold. of says whose it is: "outbox", "event".
func CheckTexts(pkg, of string, texts ...Text) error {
	for _, text := range texts {
		switch {
		case len(text.Is) > MaxText:
			return fmt.Errorf("%s: %w: the %s's %s has %d bytes; %d are possible", pkg, driver.ErrInvalidArgument, of, text.Name, len(text.Is), MaxText)
		case !Stores(text.Is):
			return fmt.Errorf("%s: %w: the %s's %s is not UTF-8 without NUL", pkg, driver.ErrInvalidArgument, of, text.Name)
		}
	}
	return nil
}

// CheckHeaders refuses headers that no column can hold, as [CheckTexts] does.
func CheckHeaders(pkg, of string, headers map[string]string) error {
	size := 0
	for name, value := range headers {
		if size += len(name) + len(value); !Stores(name) || !Stores(value) {
			return fmt.Errorf("%s: %w: a header of the %s is not UTF-8 without NUL", pkg, driver.ErrInvalidArgument, of)
		}
	}
	if size > maxHeaders {
		return fmt.Errorf("%s: %w: the %s's headers have %d bytes; %d are possible", pkg, driver.ErrTooLarge, of, size, maxHeaders)
	}
	return nil
}

// HeaderText is the column of headers: the same for the same headers.
func HeaderText(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	text, err := json.Marshal(headers)
	if err != nil { // texts have none
		return ""
	}
	return string(text)
}

// ReadHeaders reads what [HeaderText] wrote. The error wraps [driver.ErrCorruptRecord].
func ReadHeaders(pkg, text string) (headers map[string]string, err error) {
	if text != "" && (!Stores(text) || json.Unmarshal([]byte(text), &headers) != nil) { // JSON would replace what is not UTF-8
		return nil, fmt.Errorf("%s: %w: the headers are not a JSON object of texts", pkg, driver.ErrCorruptRecord)
	}
	return headers, nil
}
