package sqlstore

import "testing"

func TestArrays(t *testing.T) {
	var names, tokens, data, none array
	for _, s := range []string{"plain", `"\{},`, "", "ü"} {
		names.text(s)
	}
	tokens.number(-1)
	tokens.number(1 << 62)
	for _, b := range [][]byte{nil, {}, {0, 0xff}} {
		data.bytes(b)
	}
	none.bytes(nil)
	for got, want := range map[any]any{
		names.arg(): `{"plain","\"\\{},","","ü"}`, tokens.arg(): "{-1,4611686018427387904}", data.arg(): `{NULL,"\\x","\\x00ff"}`, none.arg(): nil,
	} {
		if got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
