package storeurl

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

func readMemory(url string, opts Options, _ bool) (Opener, error) {
	switch {
	case url != Memory:
		return nil, fmt.Errorf("%w: nothing follows %s", ErrURL, Memory)
	case opts.TablePrefix != "":
		return nil, fmt.Errorf("%w: a store in memory has no use for a table prefix", everonce.ErrInvalidArgument)
	}
	return func(context.Context) (Store, error) { return memory{memstore.New(nil)}, nil }, nil
}

// memory has nothing to close.
type memory struct{ *memstore.Store }

func (memory) Close() error { return nil }
