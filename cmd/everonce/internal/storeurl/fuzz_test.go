package storeurl

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/everonce/everonce"
)

// hush is a secret that is in no text by chance.
const hush = "hUsh7Hush"

// FuzzSecret puts a secret into a URL where each kind of store has its own, with anything around it, as somebody may
// write who does not escape it. It is in no error, in no log and in no configuration that is shown.
func FuzzSecret(f *testing.F) {
	for i := range places {
		for _, around := range []string{"", "@", "/", "?", "#", ":", "%", "%zz", " ", "\"", "'", "&", "\x7f", "é", "//", "]", "\\", "\n", "%\xfc", "\"%"} {
			f.Add(byte(i), around, "", "h:1", "db")
			f.Add(byte(i), "", around, "h:1", "db")
		}
		f.Add(byte(i), "k@", "[k=", "h:1", "db")
		f.Add(byte(i), "%zz", ");F", "h:1", "db")
		f.Add(byte(i), "@/%41", "", "h:1", "db")
		f.Add(byte(i), ":/%41", "%41", "h:1", "db")
		f.Add(byte(i), "%zz", "", "h:1", "db?a=b;tlsCertificateKeyFilePassword=x;")
		f.Add(byte(i), "", "", "h:port", "db")
		f.Add(byte(i), "", "", "h:99999", "none")
		f.Add(byte(i), "", "", "[::1", "")
		for _, before := range []string{"", "@", "\""} {
			f.Add(byte(i), before, "", "a:1,b:2", "db?x=%zz")
		}
	}
	f.Fuzz(func(t *testing.T, place byte, before, behind, host, rest string) {
		if strings.Contains(before+behind+host+rest, hush) {
			return
		}
		secret := before + hush + behind
		where := places[int(place)%len(places)]
		if strings.Contains(where, "=SECRET") && strings.Contains(before, "&") {
			return // a value ends there
		}
		text := strings.NewReplacer("SECRET", secret, "HOST", host, "REST", rest).Replace(where)
		for _, create := range []bool{true, false} {
			if _, err := read(text, Options{}, create); err != nil {
				if !errors.Is(err, ErrURL) && !errors.Is(err, everonce.ErrInvalidArgument) {
					t.Errorf("%q: %v, want ErrURL or ErrInvalidArgument", text, err)
				}
				if strings.Contains(err.Error(), hush) {
					t.Errorf("%q: the error %v tells the secret", text, err)
				}
			}
		}
		for what, shown := range map[string]string{"log": Name(text), "configuration": Shown(text)} {
			if strings.Contains(shown, hush) {
				t.Errorf("%q: the %s has %q", text, what, shown)
			}
		}
	})
}

// places are where a URL has a secret.
var places = []string{
	"postgres://user:SECRET@HOST/REST",
	"postgresql://HOST/REST?password=SECRET",
	"postgres://HOST/REST?sslmode=disable&sslpassword=SECRET",
	"mysql://user:SECRET@HOST/REST",
	"redis://user:SECRET@HOST/REST",
	"rediss://:SECRET@HOST/REST",
	"mongodb://user:SECRET@HOST/REST",
	"mongodb://HOST/REST?tlsCertificateKeyFilePassword=SECRET",
}

// FuzzMongoDB: the database is the one that MongoDB's own reader of URLs finds.
func FuzzMongoDB(f *testing.F) {
	for _, rest := range []string{
		"host:27017/shop", "a:1,b:2/shop?replicaSet=rs", "host/sh%6Fp", "host/shop@x", "u:p@h/x@host/shop", "u:p@host/shop?appName=a@b/c", "host/shop.orders",
		"host/shop#x", "host", "host/", "host/?x=/y", "%2Ftmp%2Fx.sock/shop", "host/a/b", "host/%", "u:p%40@host//shop", "[::1]:1/shop", "host/sh+op", "host/a%2Fb",
	} {
		f.Add(rest)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		text := "mongodb://" + rest
		if _, err := read(text, Options{}, false); err != nil {
			if !errors.Is(err, ErrURL) {
				t.Errorf("%q: %v, want ErrURL", text, err)
			}
			return
		}
		told, err := connstring.Parse(text)
		if err != nil {
			t.Fatalf("%q is read, and MongoDB says %v", text, err)
		}
		// It takes a + for a blank there, as in a query.
		if database := databaseOf(text); database != told.Database && !strings.Contains(rest, "+") {
			t.Errorf("%q: the database is %q, by MongoDB %q", text, database, told.Database)
		}
	})
}

// FuzzSQLiteFile: a store is in the file whose name follows "sqlite:", whatever the name is made of, and no other file
// is made.
func FuzzSQLiteFile(f *testing.F) {
	for _, name := range []string{
		"shop.db", "a b", "a?mode=memory", "a#b", "a%20b", "file:a", "file:a?mode=memory&cache=shared", ":memory:", "a?_pragma=x(1)", "a&b", "é", "-a", "a?", "a%", "a'b", "a;b", "?a", "%61",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if strings.ContainsAny(name, "/\x00") || name == "" || name == "." || name == ".." || len(name) > 100 || !utf8.ValidString(name) {
			return
		}
		t.Chdir(t.TempDir())
		s, err := create(t.Context(), sqliteScheme+name, Options{})
		if err != nil {
			if !errors.Is(err, everonce.ErrInvalidArgument) {
				t.Errorf("%q: %v, want a store, or ErrInvalidArgument", name, err)
			}
		} else if err := s.Close(); err != nil {
			t.Error(err)
		}
		files, readErr := os.ReadDir(".")
		if readErr != nil {
			t.Fatal(readErr)
		}
		there := false
		for _, file := range files {
			there = there || file.Name() == name
			if !strings.HasPrefix(file.Name(), name) {
				t.Errorf("%q: the file %q was made", name, file.Name())
			}
		}
		if there != (err == nil) {
			t.Errorf("%q: %v, and its file exists: %v", name, err, there)
		}
	})
}
