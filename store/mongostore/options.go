package mongostore

import (
	"fmt"
	"strings"

	"github.com/everonce/everonce"
)

// Options are what a store may be told. The zero value of each field is its default.
type Options struct {
	// Collection holds the records: at most 64 of a-z, A-Z, 0-9, _ and -. Two stores share their records if they have the same.
	// Default "everonce".
	Collection string
	// NoCreate makes the constructor look only: where there is no store yet it answers [everonce.ErrSchema].
	NoCreate bool
}

const (
	defaultCollection = "everonce"
	maxCollectionLen  = 64
)

func (o *Options) settings() (set Options, err error) {
	if o != nil {
		set = *o
	}
	if set.Collection == "" {
		set.Collection = defaultCollection
	}
	switch {
	case len(set.Collection) > maxCollectionLen:
		err = fmt.Errorf("mongostore: %w: Options.Collection has %d bytes, the limit is %d", everonce.ErrInvalidArgument, len(set.Collection), maxCollectionLen)
	case strings.Trim(set.Collection, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		err = fmt.Errorf("mongostore: %w: Options.Collection may have a-z, A-Z, 0-9, _ and - only", everonce.ErrInvalidArgument)
	}
	return set, err
}
