package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mongostore"
)

// connectMongoDB opens the store in the database that a MongoDB URL names.
func connectMongoDB(ctx context.Context, text string, opts Options, create bool) (Store, error) {
	if opts.Schema != "" {
		return nil, fmt.Errorf("%w: MongoDB has no schemas", everonce.ErrInvalidArgument)
	}
	database, secrets := readMongoDB(text)
	hide := func(err error) error { return &secretError{err: err, secrets: secrets} }
	if database == "" {
		return nil, fmt.Errorf("%w: the MongoDB URL names no database: mongodb://host/DATABASE", ErrURL)
	}
	client := options.Client().ApplyURI(text)
	if err := client.Validate(); err != nil {
		return nil, hide(fmt.Errorf("%w: %w", ErrURL, err))
	}
	if client.ServerSelectionTimeout == nil {
		client.SetServerSelectionTimeout(connectTimeout)
	}
	conn, err := mongo.Connect(client)
	if err != nil {
		return nil, hide(fmt.Errorf("%w: %w", everonce.ErrStore, err))
	}
	s, err := mongostore.New(ctx, conn.Database(database), &mongostore.Options{Collection: opts.TablePrefix, NoCreate: !create})
	if err != nil {
		if !errors.Is(err, everonce.ErrInvalidArgument) {
			err = fmt.Errorf("%w: %w", everonce.ErrStore, err)
		}
		return nil, hide(errors.Join(err, conn.Disconnect(context.WithoutCancel(ctx))))
	}
	return &mongoDB{Store: s, client: conn}, nil
}

// readMongoDB returns the database of a MongoDB URL, and what is secret in it. Such a URL may name several hosts with their ports, which is none
// of net/url's.
func readMongoDB(text string) (database string, secrets []string) {
	_, rest, _ := strings.Cut(text, "://")
	rest, query, _ := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			secrets = append(secrets, secretForms(password)...)
		}
		rest = rest[at+1:]
	}
	if values, err := url.ParseQuery(query); err == nil {
		secrets = append(secrets, secretForms(values.Get("tlsCertificateKeyFilePassword"))...)
	}
	_, database, _ = strings.Cut(rest, "/")
	if plain, err := url.PathUnescape(database); err == nil {
		database = plain
	}
	return database, secrets
}

// secretForms returns a secret as it is written, and as it is meant.
func secretForms(written string) (forms []string) {
	plain, err := url.PathUnescape(written)
	if err != nil {
		plain = written
	}
	for _, form := range []string{written, plain, url.QueryEscape(plain), url.PathEscape(plain)} {
		if len(form) >= minSecret {
			forms = append(forms, form)
		}
	}
	return forms
}

// mongoDB closes its client with it.
type mongoDB struct {
	*mongostore.Store
	client *mongo.Client
}

func (m *mongoDB) Close() error { return m.client.Disconnect(context.Background()) }
