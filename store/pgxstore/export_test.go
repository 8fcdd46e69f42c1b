package pgxstore

import "github.com/everonce/everonce/store/sqlstore"

// Texts returns the statements of a store with these options.
func Texts(opts *Options) (*sqlstore.Statements, error) {
	d, err := newDatabase(opts)
	if err != nil {
		return nil, err
	}
	return d.statements, nil
}

// Failing is the wrapper of statements that ride on a commit.
var Failing = failing
