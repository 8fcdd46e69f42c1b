package httponce

import (
	"errors"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
)

func TestTransportField(t *testing.T) {
	for _, tc := range []struct {
		key          string
		quoted, raw  string
		errQ, errRaw error
	}{
		{key: "8e03978e-40d5-43dd-bc93-6894a57f9324", quoted: `"8e03978e-40d5-43dd-bc93-6894a57f9324"`, raw: "8e03978e-40d5-43dd-bc93-6894a57f9324"},
		{key: `back\slash`, quoted: `"back\\slash"`, raw: `back\slash`},
		{key: `in"side`, quoted: `"in\"side"`, raw: `in"side`},
		{key: `"quoted"`, quoted: `"\"quoted\""`, errRaw: errTransportKeyRaw},
		{key: "a,b", quoted: `"a,b"`, errRaw: errTransportKeyRaw},
		{key: "", errQ: errTransportKeyEmpty, errRaw: errTransportKeyEmpty},
		{key: "a b", errQ: errTransportKeyChars, errRaw: errTransportKeyChars},
		{key: "a\r\nX-Injected: 1", errQ: errTransportKeyChars, errRaw: errTransportKeyChars},
		{key: "a\x00", errQ: errTransportKeyChars, errRaw: errTransportKeyChars},
		{key: "a\x7f", errQ: errTransportKeyChars, errRaw: errTransportKeyChars},
		{key: "größe", errQ: errTransportKeyChars, errRaw: errTransportKeyChars},
		{key: strings.Repeat("k", 255), quoted: `"` + strings.Repeat("k", 255) + `"`, raw: strings.Repeat("k", 255)},
		{key: strings.Repeat("k", 256), errQ: errTransportKeyLong, errRaw: errTransportKeyLong},
	} {
		for _, raw := range []bool{false, true} {
			want, wantErr := tc.quoted, tc.errQ
			if raw {
				want, wantErr = tc.raw, tc.errRaw
			}
			got, err := transportField(tc.key, raw)
			if got != want || !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
				t.Errorf("transportField(%q, %v) = %q, %v; want %q, %v", tc.key, raw, got, err, want, wantErr)
			}
		}
	}
}

func FuzzTransportField(f *testing.F) {
	for _, seed := range []string{"order-7", `a"b\c`, `"q"`, "a,b", "a b", "\x00", "é", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		v, err := transportField(key, false)
		if err != nil {
			return
		}
		item, err := httpsfv.UnmarshalItem([]string{v})
		if err != nil || item.Value != key || len(item.Params.Names()) > 0 {
			t.Errorf("%q is sent as %q, which reads as %v (%v)", key, v, item.Value, err)
		}
		raw, err := transportField(key, true)
		if err == nil && raw != key {
			t.Errorf("%q is sent raw as %q", key, raw)
		}
	})
}
