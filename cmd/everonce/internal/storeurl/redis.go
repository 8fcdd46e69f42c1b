package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/redisstore"
)

// readRedis reads a Redis URL. A service is refused a server that forgets; who only looks and settles is not.
func readRedis(text string, opts Options, create bool) (Opener, error) {
	if _, err := url.Parse(text); err != nil { // its text may hold a part of the password, so the error omits it
		return nil, fmt.Errorf("%w: the Redis URL cannot be parsed; special characters in user and password must be percent-encoded", ErrURL)
	}
	opt, err := rueidis.ParseURL(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if opt.Dialer.Timeout == 0 {
		opt.Dialer.Timeout = connectTimeout
	}
	opt.DisableCache = true // nothing is kept here that the server would have to take back
	set := &redisstore.Options{KeyPrefix: opts.TablePrefix}
	if !create {
		set.Accept = redisstore.RiskEviction | redisstore.RiskNoLog | redisstore.RiskUnknown
	}
	if err := set.Validate(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Store, error) { return connectRedis(ctx, opt, set) }, nil
}

func connectRedis(ctx context.Context, opt rueidis.ClientOption, set *redisstore.Options) (*redis, error) {
	client, err := rueidis.NewClient(opt)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", everonce.ErrStore, err)
	}
	s, err := redisstore.New(ctx, client, set)
	if err != nil {
		client.Close()
		if errors.Is(err, redisstore.ErrRisk) {
			return nil, fmt.Errorf("%w: %w", everonce.ErrInvalidArgument, err)
		}
		return nil, err
	}
	return &redis{Store: s, client: client}, nil
}

// redis closes its client with it.
type redis struct {
	*redisstore.Store
	client rueidis.Client
}

func (r *redis) Close() error {
	r.client.Close()
	return nil
}
