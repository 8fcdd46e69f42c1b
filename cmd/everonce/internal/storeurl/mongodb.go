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

func readMongoDB(text string, opts Options, create bool) (Opener, error) {
	database := databaseOf(text)
	if database == "" {
		return nil, fmt.Errorf("%w: the MongoDB URL names no database: mongodb://host/DATABASE", ErrURL)
	}
	client := options.Client().ApplyURI(text)
	if err := client.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if client.ServerSelectionTimeout == nil {
		client.SetServerSelectionTimeout(connectTimeout)
	}
	set := &mongostore.Options{Collection: opts.TablePrefix, NoMigrate: !create}
	if err := set.Validate(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Store, error) { return connectMongoDB(ctx, client, database, set) }, nil
}

func connectMongoDB(ctx context.Context, client *options.ClientOptions, database string, set *mongostore.Options) (*mongoDB, error) {
	conn, err := mongo.Connect(client)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", everonce.ErrStore, err)
	}
	s, err := mongostore.New(ctx, conn.Database(database), set)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", everonce.ErrStore, err), conn.Disconnect(context.WithoutCancel(ctx)))
	}
	return &mongoDB{Store: s, client: conn}, nil
}

// databaseOf returns the database of a MongoDB URL. Such a URL may name several hosts with their ports, which
// net/url does not parse.
func databaseOf(text string) string {
	_, rest, _ := strings.Cut(text, "://")
	rest, _, _ = strings.Cut(rest, "?")
	if _, behind, ok := strings.Cut(rest, "@"); ok {
		rest = behind
	}
	_, database, _ := strings.Cut(rest, "/")
	if plain, err := url.PathUnescape(database); err == nil {
		database = plain
	}
	return database
}

// mongoDB closes its client with it.
type mongoDB struct {
	*mongostore.Store
	client *mongo.Client
}

func (m *mongoDB) Close() error { return m.client.Disconnect(context.Background()) }
