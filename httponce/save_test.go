package httponce

import (
	"errors"
	"maps"
	"strconv"
	"testing"

	"github.com/everonce/everonce"
)

func TestDefaultSave(t *testing.T) {
	by, err := Save(nil).compile(ProfileDefault)
	if err != nil {
		t.Fatal(err)
	}
	for status := range 1200 {
		want := Unknown
		switch {
		case status == 401, status == 403, status == 421, status == 425, status == 429:
			want = Released
		case status == 408:
		case status >= 200 && status < 500: // 409 and 423 among them
			want = Saved
		}
		if got := by.of(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}

func TestProfileStripe(t *testing.T) {
	by, err := Save(nil).compile(ProfileStripe)
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]Ending{200: Saved, 402: Saved, 408: Saved, 409: Saved, 429: Released, 401: Released, 500: Saved, 503: Saved, 599: Saved, 600: Unknown} {
		if got := by.of(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}

// A Save decides the statuses that it names, a status before its class, and the default decides the rest.
func TestSaveOverDefault(t *testing.T) {
	for range 20 { // whatever order a map is in
		by, err := Save{"409": Released, "4xx": Unknown, "500": Saved, "3xx": Released, "302": Saved}.compile(ProfileDefault)
		if err != nil {
			t.Fatal(err)
		}
		for status, want := range map[int]Ending{
			409: Released, 410: Unknown, 429: Released, 408: Unknown, 500: Saved, 501: Unknown, 302: Saved, 303: Released, 201: Saved,
		} {
			if got := by.of(status); got != want {
				t.Errorf("%d: %v, want %v", status, got, want)
			}
		}
	}
}

// A success is not run again by every repetition because of a table: neither by a status, nor through its class.
func TestSaveReleasesNoSuccess(t *testing.T) {
	for name, s := range map[string]Save{
		"a status": {"200": Released}, "the last one": {"299": Released}, "a class": {"2xx": Released}, "the rest of a class": {"2xx": Released, "200": Saved},
	} {
		if _, err := s.compile(ProfileDefault); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Save{"2xx": Unknown, "300": Released}).compile(ProfileDefault); err != nil {
		t.Errorf("of what may be: %v", err)
	}
}

func TestSaveNames(t *testing.T) {
	for _, name := range []string{"", "1xx", "6xx", "4XX", "xx", "x", "4x", "4xxx", "199", "600", "99", "1000", "0200", "+20", "-20", "20 ", " 20", "2.0", "abc", "2ab", "20x"} {
		if _, err := (Save{name: Saved}).compile(ProfileDefault); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for status := firstStatus; status <= lastStatus; status++ {
		if by, err := (Save{strconv.Itoa(status): Unknown}).compile(ProfileDefault); err != nil || by.of(status) != Unknown {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// The returned maps belong to the caller.
func TestSavesAreTheCallers(t *testing.T) {
	before := DefaultSave()
	for _, s := range []Save{DefaultSave(), ProfileStripe.save()} {
		clear(s)
	}
	if !maps.Equal(before, DefaultSave()) || len(ProfileStripe.save()) == 0 {
		t.Error("a change reaches the next caller")
	}
}

func TestEndingNames(t *testing.T) {
	for e, want := range map[Ending]string{0: "none", Saved: "saved", Released: "released", Unknown: "unknown", 4: "none"} {
		if e.String() != want {
			t.Errorf("%d: %q, want %q", e, e, want)
		}
	}
}
