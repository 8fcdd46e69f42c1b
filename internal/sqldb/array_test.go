package sqldb

import "testing"

func TestArrays(t *testing.T) {
	var names, tokens, data, none Array
	for _, s := range []string{"plain", `"\{},`, "", "ü"} {
		names.Text(s)
	}
	tokens.Int(-1)
	tokens.Int(1 << 62)
	for _, b := range [][]byte{nil, {}, {0, 0xff}} {
		data.Bytes(b)
	}
	none.Bytes(nil)
	for got, want := range map[any]any{
		names.Arg(): `{"plain","\"\\{},","","ü"}`, tokens.Arg(): "{-1,4611686018427387904}", data.Arg(): `{NULL,"\\x","\\x00ff"}`, none.Arg(): nil,
	} {
		if got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
