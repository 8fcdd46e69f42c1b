package enginetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// parts draws the parts of a scope, with more of what is special in them than chance would.
func parts() *rapid.Generator[[]string] {
	part := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]string{"/", "%", "%2F", "%25", "2F", "25", "a", "ü"}), rapid.String(),
		), 0, 5).Draw(t, "pieces"), "")
	})
	return rapid.SliceOfN(part, 1, 4)
}

func TestScopeOfIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts().Draw(t, "a"), parts().Draw(t, "b")
		sa, sb := everonce.ScopeOf(a...), everonce.ScopeOf(b...)
		if (sa == sb) != slices.Equal(a, b) {
			t.Fatalf("%q is the scope of %q, and %q the scope of %q", sa, a, sb, b)
		}
		if got := sa.Parts(); !slices.Equal(got, a) {
			t.Fatalf("Parts: %q, want %q", got, a)
		}
	})
}

func TestScopeWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts().Draw(t, "a"), parts().Draw(t, "b")
		if rapid.Bool().Draw(t, "nested") {
			b = append(slices.Clone(a), b...)
		}
		want := len(b) >= len(a) && slices.Equal(b[:len(a)], a)
		if got := everonce.ScopeOf(b...).Within(everonce.ScopeOf(a...)); got != want {
			t.Fatalf("%q within %q: %v", b, a, got)
		}
	})
	for _, c := range []struct {
		s, outer everonce.Scope
		want     bool
	}{
		{"acme/orders", "acme", true},
		{"acme", "acme", true},
		{"acme-2/orders", "acme", false},
		{"acme", "acme/orders", false},
		{"acme/orders", "acme/order", false},
		{"acme", "", false},
	} {
		if got := c.s.Within(c.outer); got != c.want {
			t.Errorf("%q within %q: %v", c.s, c.outer, got)
		}
	}
}

func TestKeyValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		key  everonce.Key
		says string // empty: valid
	}{
		{"ordinary", keyOf("order-7"), ""},
		{"longest", everonce.Key{Scope: everonce.Scope(strings.Repeat("s", driver.MaxScopeLen)), ID: strings.Repeat("i", driver.MaxIDLen)}, ""},
		{"UTF-8", everonce.Key{Scope: "Größe", ID: "ключ-鍵-🔑"}, ""},
		{"the replacement character itself", keyOf("a\uFFFDb"), ""},
		{"spaces", keyOf(" a b "), ""},
		{"no scope", everonce.Key{ID: "x"}, "scope is empty"},
		{"no ID", everonce.Key{Scope: "s"}, "ID is empty"},
		{"scope too long", everonce.Key{Scope: everonce.Scope(strings.Repeat("s", driver.MaxScopeLen+1)), ID: "x"}, "scope has 513 bytes, the limit is 512"},
		{"ID too long", keyOf(strings.Repeat("ü", driver.MaxIDLen/2+1)), "ID has 514 bytes, the limit is 512"},
		{"NUL", keyOf("a\x00b"), "ID has a control character at byte 1"},
		{"newline", keyOf("secret\n"), "ID has a control character at byte 6"},
		{"DEL", keyOf("\x7f"), "ID has a control character at byte 0"},
		{"C1", keyOf("ab\u0085"), "ID has a control character at byte 2"},
		{"C0 behind UTF-8", keyOf("ü\t"), "ID has a control character at byte 2"},
		{"DEL behind UTF-8", keyOf("ü\x7f"), "ID has a control character at byte 2"},
		{"not UTF-8", keyOf("abc\xff"), "ID is not valid UTF-8 at byte 3"},
		{"cut UTF-8", keyOf("ü\xc3"), "ID is not valid UTF-8 at byte 2"},
		{"scope not UTF-8", everonce.Key{Scope: "\xff", ID: "x"}, "scope is not valid UTF-8 at byte 0"},
		{"an empty first part", everonce.Key{Scope: everonce.ScopeOf("", "orders"), ID: "x"}, "scope has an empty part"},
		{"an empty part", everonce.Key{Scope: everonce.ScopeOf("acme", "", "orders"), ID: "x"}, "scope has an empty part"},
		{"an empty last part", everonce.Key{Scope: everonce.ScopeOf("acme", ""), ID: "x"}, "scope has an empty part"},
		{"slashes inside a part", everonce.Key{Scope: everonce.ScopeOf("/", "//a/"), ID: "x"}, ""},
		{"scope with a control character", everonce.Key{Scope: "a\rb", ID: "x"}, "scope has a control character at byte 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.key.Validate()
			if ofScope := c.key.Scope.Validate(); strings.HasPrefix(c.says, "scope") || ofScope != nil { // what is wrong with both is said of the scope
				checkEqual(t, "of the scope", ofScope, err)
			}
			if c.says == "" {
				checkErr(t, err, nil)
				return
			}
			checkErr(t, err, everonce.ErrInvalidKey)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q, want that it says %q", err, c.says)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q quotes the key", err)
			}
		})
	}
}

func TestRecordIDVectors(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	withSecret := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{IdentitySecret: secret})
	plain := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for _, c := range []struct {
		scope          everonce.Scope
		id             string
		want, withSecr string
	}{
		{
			everonce.ScopeOf("tenant-1", "POST /charges"), "order-7",
			"c2efb128e3ebf08bc2e64e12709f7d96d66957fd0f3613abea42e5537212ca6a",
			"c2efb128e3ebf08b3bb4ee9164b32f17654c50a0c1bd04e49cbd717df284942f",
		},
		{
			"a", "bc",
			"af63dc4c8601ec8c8aca3a3a640ef311c881cc51b8b3b500f2b55caaa24a5b97",
			"af63dc4c8601ec8c6373f1006f2df40daa6e5259af8dd27640a90ce679b63958",
		},
		{
			"ab", "c",
			"089c4407b545986a7c1fdc5c3c14e7cdda33e056f1fb78f728b143172958f948",
			"089c4407b545986af1b4a6e3baccff9edd4cb152af14111ca218bb3f5c1f77b9",
		},
		{
			"Ünïcode", "ключ",
			"2b3811cdd503dfcb716034313778afdb21b7a4417e0e8a0d0d022b0fd89e0a4d",
			"2b3811cdd503dfcbfd460f709a2eb5f45e43353356028d1ee1ccea2a7884dae7",
		},
	} {
		key := everonce.Key{Scope: c.scope, ID: c.id}
		checkEqual(t, "RecordID of "+c.id, key.RecordID().String(), c.want)
		checkEqual(t, "of a receiver", plain.RecordID(key).String(), c.want)
		checkEqual(t, "with a secret", withSecret.RecordID(key).String(), c.withSecr)
	}
}

func TestRecordIDTellsKeysApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.Custom(func(t *rapid.T) everonce.Key {
			return everonce.Key{
				Scope: everonce.ScopeOf(parts().Draw(t, "scope")...), ID: rapid.StringN(1, 8, -1).Draw(t, "ID"),
			}
		})
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if rapid.Bool().Draw(t, "border moved") { // the same bytes, divided elsewhere
			both := string(a.Scope) + a.ID
			i := rapid.IntRange(0, len(both)).Draw(t, "border")
			b = everonce.Key{Scope: everonce.Scope(both[:i]), ID: both[i:]}
		}
		if (a.RecordID() == b.RecordID()) != (a == b) {
			t.Fatalf("%+v and %+v: %v, %v", a, b, a.RecordID(), b.RecordID())
		}
	})
}

func TestRecordsOfATenantLieTogether(t *testing.T) {
	want := driver.ScopeRange("tenant-1")
	for _, s := range []everonce.Scope{"tenant-1", everonce.ScopeOf("tenant-1", "a"), everonce.ScopeOf("tenant-1", "b", "c")} {
		id := everonce.Key{Scope: s, ID: "x"}.RecordID()
		if !bytes.Equal(id[:8], want[:]) {
			t.Errorf("%q has the prefix %x, want %x", s, id[:8], want)
		}
	}
	other := everonce.Key{Scope: "tenant-2", ID: "x"}.RecordID()
	if bytes.Equal(other[:8], want[:]) {
		t.Error("two tenants have one prefix")
	}
}

func TestShortIsOfTheHashOnly(t *testing.T) {
	key := keyOf("order-7")
	id := key.RecordID()
	short := id.Short()
	sum := sha256.Sum256([]byte("everonce/record/1\x00" + "\x00\x00\x00\x18" + string(key.Scope) + key.ID))
	checkEqual(t, "Short", short, hex.EncodeToString(sum[:8]))
	if len(key.Scope) != 0x18 {
		t.Fatalf("the scope has %d bytes", len(key.Scope))
	}
	if !strings.Contains(id.String(), short) {
		t.Errorf("%q is no part of %q: an operator could not find the record by it", short, id)
	}
}

func TestParseRecordID(t *testing.T) {
	id := keyOf("x").RecordID()
	for _, s := range []string{id.String(), strings.ToUpper(id.String())} {
		got, err := driver.ParseRecordID(s)
		checkErr(t, err, nil)
		checkEqual(t, "parsed", got, id)
	}
	for _, s := range []string{"", "ab", id.String() + "00", id.String()[1:], strings.Repeat("g", 64), strings.Repeat("ü", 32)} {
		got, err := driver.ParseRecordID(s)
		checkErr(t, err, everonce.ErrInvalidKey)
		if got != (everonce.RecordID{}) {
			t.Errorf("%q gave %v with an error", s, got)
		}
	}
}

func TestParseKeyHash(t *testing.T) {
	id := keyOf("x").RecordID()
	for _, s := range []string{id.Short(), id.Hash().String(), strings.ToUpper(id.Short())} {
		got, err := driver.ParseKeyHash(s)
		checkErr(t, err, nil)
		checkEqual(t, "parsed", got, id.Hash())
	}
	for _, s := range []string{"", "ab", id.Short() + "00", id.Short()[1:], id.String(), strings.Repeat("g", 16), "00000000000000ü"} {
		got, err := driver.ParseKeyHash(s)
		checkErr(t, err, everonce.ErrInvalidKey)
		if got != (driver.KeyHash{}) {
			t.Errorf("%q gave %v with an error", s, got)
		}
	}
}

func TestLifetimes(t *testing.T) {
	for name, l := range map[string]everonce.Lifetime{
		"web": everonce.ForWeb(), "queue": everonce.ForQueue(), "finance": everonce.ForFinance(),
	} {
		if l.Retention <= 0 || l.Remember <= 0 || l.Total() != l.Retention+l.Remember {
			t.Errorf("%s: %+v, total %v", name, l, l.Total())
		}
	}
	const day = 24 * 3600e9
	checkEqual(t, "a year of finance", int64(everonce.ForFinance().Total()), int64(365*day))
}

func TestNoncesDiffer(t *testing.T) {
	seen := map[driver.Nonce]bool{}
	for range 10_000 {
		n := driver.NewNonce()
		if seen[n] || n == (driver.Nonce{}) {
			t.Fatalf("nonce %v came twice, or is zero", n)
		}
		seen[n] = true
	}
}

func FuzzScopeOf(f *testing.F) {
	f.Add("tenant", "POST /charges")
	f.Add("", "%2F")
	f.Add("a/b", "%")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, list := range [][]string{{a}, {a, b}, {a, b, a}} {
			s := everonce.ScopeOf(list...)
			if got := s.Parts(); !slices.Equal(got, list) {
				t.Errorf("Parts of %q: %q, want %q", s, got, list)
			}
			if !s.Within(everonce.ScopeOf(a)) {
				t.Errorf("%q is not within %q", s, everonce.ScopeOf(a))
			}
		}
		if a != b && everonce.ScopeOf(a) == everonce.ScopeOf(b) {
			t.Errorf("%q and %q have one scope", a, b)
		}
	})
}

func FuzzScopeParts(f *testing.F) {
	f.Add("a/b%2Fc%25")
	f.Add("%2")
	f.Fuzz(func(t *testing.T, s string) {
		// A scope that ScopeOf did not make is still read the same way every time, and into as many parts as it
		// has.
		parts := everonce.Scope(s).Parts()
		if len(parts) != strings.Count(s, "/")+1 {
			t.Errorf("%q has %d parts", s, len(parts))
		}
		if again := everonce.ScopeOf(parts...).Parts(); !slices.Equal(again, parts) {
			t.Errorf("%q: %q, then %q", s, parts, again)
		}
	})
}

func FuzzKeyValidate(f *testing.F) {
	f.Add("scope", "id")
	f.Add("\x7f", "\u0085")
	f.Add("a\xff", "\uFFFD")
	f.Fuzz(func(t *testing.T, scope, id string) {
		key := everonce.Key{Scope: everonce.Scope(scope), ID: id}
		err := key.Validate()
		if err != nil {
			if !errors.Is(err, everonce.ErrInvalidKey) {
				t.Errorf("%v is no ErrInvalidKey", err)
			}
			return
		}
		for _, s := range []string{scope, id} {
			if s == "" || len(s) > 512 || strings.ToValidUTF8(s, "") != s {
				t.Errorf("%q was accepted", s)
			}
			for _, r := range s {
				if r < 0x20 || r >= 0x7f && r < 0xa0 {
					t.Errorf("%q was accepted with %U", s, r)
				}
			}
		}
		// The key has an identity, and it reads back.
		parsed, err := driver.ParseRecordID(key.RecordID().String())
		if err != nil || parsed != key.RecordID() {
			t.Errorf("%v read back as %v: %v", key.RecordID(), parsed, err)
		}
	})
}

func FuzzParseRecordID(f *testing.F) {
	f.Add(keyOf("x").RecordID().String())
	f.Add(strings.Repeat("0", 63) + "g")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := driver.ParseRecordID(s)
		if err != nil {
			if !errors.Is(err, everonce.ErrInvalidKey) || id != (everonce.RecordID{}) {
				t.Errorf("%q: %v, %v", s, id, err)
			}
			return
		}
		if !strings.EqualFold(id.String(), s) {
			t.Errorf("%q was read as %v", s, id)
		}
	})
}
