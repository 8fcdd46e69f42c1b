package socketurl

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	whole := "/" + strings.Repeat("x", maxPath-1)
	for text, want := range map[string]string{
		"unix:/run/a.sock": "/run/a.sock", "unix:///run/a@1.sock": "/run/a@1.sock", "unix:/run/%41.sock": "/run/A.sock", "unix:" + whole: whole,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Path(u); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]error{
		"unix:": ErrPath, "unix:a.sock": ErrPath, "unix://run/a.sock": ErrPath, "unix://user@/run/a.sock": ErrPath, "unix:/run/a.sock?": ErrPath, "unix:/run/a.sock?x": ErrPath,
		"unix:/run/a.sock#x": ErrPath, "unix:/run/%00": ErrPath, "unix:" + whole + "x": ErrLong,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Path(u); !errors.Is(err, want) || got != "" {
			t.Errorf("%s: %q, %v, want %v", text, got, err, want)
		}
	}
}
