package enginetest

import (
	"reflect"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

type (
	debit struct {
		Account string
		Cents   int
	}
	credit struct {
		Account string
		Cents   int
	}
	transfer struct {
		debit
		credit
	}
	note     struct{ Note string }
	noted    struct{ note }
	remark   struct{ Note string }
	remarked struct{ remark }
	twoNotes struct {
		noted
		remarked
		ID string
	}
	twice struct {
		noted
		Other struct{ note }
	}
	oneTagged struct {
		note
		tagNote
	}
	tagNote struct {
		Text string `json:"Note"`
	}
	nearer struct {
		debit
		credit
		Account string
		Cents   int
	}
	Ring struct {
		*Ring
		Name string
	}
)

// Of fields that clash, by one name at one depth, JSON writes none, and says nothing of it: all transfers would be equal.
func TestFieldsThatClash(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	checkBorrowed(t, r, "of two that are embedded", transfer{debit{"a", 5}, credit{"b", 5}})
	checkBorrowed(t, r, "of one of them", transfer{credit: credit{Cents: 5}})
	checkBorrowed(t, r, "a pointer", &transfer{credit: credit{Cents: 5}})
	checkBorrowed(t, r, "deeper", twoNotes{noted{note{"x"}}, remarked{}, "7"})
	checkBorrowed(t, r, "where another has a tag", oneTagged{note: note{"x"}})
	checkBorrowed(t, r, "in a list", []transfer{{credit: credit{Cents: 5}}})
	checkBorrowed(t, r, "in a field", struct{ T transfer }{transfer{debit{"a", 5}, credit{}}})
	checkBorrowed(t, r, "in an interface", map[string]any{"t": transfer{credit: credit{Cents: 5}}})

	checkOwn(t, r, "one has a tag", oneTagged{tagNote: tagNote{"x"}}, oneTagged{tagNote: tagNote{"y"}})
	checkOwn(t, r, "a nearer one", nearer{Account: "a", Cents: 1}, nearer{Account: "a", Cents: 2})
	checkOwn(t, r, "apart", twice{noted{note{"x"}}, struct{ note }{note{"z"}}}, twice{noted{note{"y"}}, struct{ note }{note{"z"}}})
	checkOwn(t, r, "no pointer to it", twice{}, twice{Other: struct{ note }{note{"z"}}})
	checkOwn(t, r, "a ring", &Ring{Name: "x"}, &Ring{Name: "y"})
	checkOwn(t, r, "zero", transfer{}, transfer{})
}

// By their tags, fields of one struct clash too.
func TestTagsThatClash(t *testing.T) {
	n := reflect.TypeFor[int]() // in a type of its own go vet would find it
	v := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "A", Type: n, Tag: `json:"n"`}, {Name: "B", Type: n, Tag: `json:"n"`}})).Elem()
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	do(t, r, keyOf("zero"), returns("v", nil), everonce.Executed, nil, everonce.FingerprintOf(v.Interface()))
	v.Field(1).SetInt(1)
	do(t, r, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument, everonce.FingerprintOf(v.Interface()))
	if data, err := everonce.JSON().Marshal(v.Interface()); err == nil {
		t.Errorf("written as %s", data)
	}
}
