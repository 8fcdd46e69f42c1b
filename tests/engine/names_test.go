package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/everonce/everonce"
)

// namedCodec is JSON by any name.
type namedCodec struct {
	everonce.Codec
	name string
}

func (c namedCodec) Name() string { return c.name }

// Names that go into records are refused where a database would refuse them at every claim.
func TestNamesInRecordsAreValidated(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	ctx := context.Background()
	for name, text := range map[string]string{
		"NUL":               "a\x00b",
		"a control":         "a\nb",
		"no UTF-8":          "a\xff",
		"half of a rune":    "a\xc3",
		"a surrogate":       "\xed\xa0\x80",
		"too long":          strings.Repeat("x", 1000),
		"NUL and not UTF-8": "a\x00\xff",
	} {
		t.Run(name, func(t *testing.T) {
			codec := namedCodec{everonce.JSON(), text}
			for what, o := range map[string]everonce.Options{"Owner": {Owner: text}, "Codec": {Codec: codec}} {
				_, err := everonce.NewReceiver(s, everonce.Refuse, &o)
				checkErr(t, err, everonce.ErrInvalidArgument)
				if err != nil && strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q quotes what was refused", what, err)
				}
				_, err = everonce.NewTxReceiver(newMapStore(), &o)
				checkErr(t, err, everonce.ErrInvalidArgument)
			}
			for _, o := range []everonce.CallOption{everonce.WithCodec(codec), everonce.Fingerprint{Alg: text, Sum: [32]byte{1}}} {
				do(t, r, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument, o)
			}
			for _, settlement := range []everonce.Settlement{{By: text}, {Encoded: []byte("1"), Codec: text}} {
				settlement.Verdict = everonce.SettleDone
				checkErr(t, r.Settle(ctx, keyOf("x"), settlement), everonce.ErrInvalidArgument)
			}
		})
	}
	checkEqual(t, "calls of the store", len(s.calls), 0)
	_, err := everonce.NewReceiver(s, everonce.Refuse, &everonce.Options{Codec: namedCodec{everonce.JSON(), ""}})
	checkErr(t, err, everonce.ErrInvalidArgument)
	do(t, newReceiver(t, s, everonce.Refuse, &everonce.Options{Owner: "Zürich:1", Codec: namedCodec{everonce.JSON(), "json/ß"}}),
		keyOf("x"), returns("v", nil), everonce.Executed, nil, everonce.Fingerprint{Alg: "sha-ß", Sum: [32]byte{1}})
}
