package oncetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

func is[Power any](s everonce.Store) bool { _, ok := driver.PowerOf[Power](s); return ok }

// TestEveryPowerHasAFate compares the optional powers of the core with what becomes of each in a store that is
// wrapped: add a new power here, and to the comment of FaultStore.
func TestEveryPowerHasAFate(t *testing.T) {
	fates := map[string]struct {
		is     func(everonce.Store) bool
		passed bool
	}{
		"Lister":         {is[driver.Lister], true},
		"ScopeDeleter":   {is[driver.ScopeDeleter], true},
		"HealthChecker":  {is[driver.HealthChecker], true},
		"WriteChecker":   {is[driver.WriteChecker], true},
		"IdentityKeeper": {is[driver.IdentityKeeper], true},
		"IdentityReader": {is[driver.IdentityReader], false},
		"Recaller":       {is[driver.Recaller], false},
		"ChangeWaiter":   {is[driver.ChangeWaiter], false},
		"Prompter":       {is[driver.Prompter], false},
		"TxBatch":        {nil, true}, // of a transaction: TestFaultTxStoreFailsBatches goes through it
	}
	store := &called{} // which has every one
	wrapped := map[string]everonce.Store{"FaultStore": FaultStore(store, nil), "FaultTxStore": FaultTxStore[int](calledTx{called: store}, nil)}
	for _, name := range powersOfTheCore(t) {
		fate, known := fates[name]
		if !known {
			t.Errorf("%s is an optional power, and it is not declared what a wrapped store does about it", name)
		}
		delete(fates, name)
		if fate.is == nil {
			continue
		}
		if !fate.is(store) {
			t.Errorf("%s: the store that is wrapped does not have it: the test is blind", name)
		}
		for what, s := range wrapped {
			if got := fate.is(s); got != fate.passed {
				t.Errorf("%s: a store that has it, wrapped by %s, has it: %v, want %v", name, what, got, fate.passed)
			}
		}
	}
	for name := range fates {
		t.Errorf("%s is no optional power any more", name)
	}
}

// powersOfTheCore are the interfaces of package driver whose comments say that they are optional powers.
func powersOfTheCore(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../driver/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && strings.Contains(d.Doc.Text(), " is an optional power of ") {
				names = append(names, d.Specs[0].(*ast.TypeSpec).Name.Name)
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("package driver has no optional powers: the test looks in the wrong place")
	}
	return names
}
