package mongostore

import (
	"fmt"
	"strings"

	"github.com/everonce/everonce/driver"
)

// Options are the options of a store. The zero value of each field is its default.
type Options struct {
	// Collection holds the records. Its name has at most 64 of a-z, A-Z, 0-9, _ and -. Two stores with the same
	// collection share their records. Default "everonce".
	Collection string
	// NoMigrate keeps the constructor from creating anything: it returns [driver.ErrSchema] if there is no store yet.
	NoMigrate bool
}

const (
	defaultCollection = "everonce"
	maxCollectionLen  = 64
)

// Validate returns the error with which [New] would refuse the options. It does not connect to anything.
func (o *Options) Validate() error {
	_, err := o.settings()
	return err
}

func (o *Options) settings() (set Options, err error) {
	if o != nil {
		set = *o
	}
	if set.Collection == "" {
		set.Collection = defaultCollection
	}
	switch {
	case len(set.Collection) > maxCollectionLen:
		err = fmt.Errorf("mongostore: %w: Options.Collection has %d bytes, the limit is %d", driver.ErrInvalidArgument, len(set.Collection), maxCollectionLen)
	case strings.Trim(set.Collection, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		err = fmt.Errorf("mongostore: %w: Options.Collection may only contain a-z, A-Z, 0-9, _ and -", driver.ErrInvalidArgument)
	}
	return set, err
}
