package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/dynamostore"
)

const (
	dynamodbCallers = 16
	dynamodbKeys    = 200
)

// dynamodbBench is a separate table on the server that the tests use, with items that are written by hand beside the
// records. Its round trips are requests.
type dynamodbBench struct {
	transport *http.Transport
	client    *dynamodb.Client
	table     string
	receiver  *everonce.Receiver
	tx        *everonce.TxReceiver[*dynamostore.Tx]
	requests  atomic.Int64
}

func dynamoDB(ctx context.Context) ([]*contest, func() error, error) {
	url := os.Getenv("EVERONCE_TEST_DYNAMODB_URL")
	if url == "" {
		return nil, nil, errors.New(`no DynamoDB: run it by make bench, or set EVERONCE_TEST_DYNAMODB_URL, or choose others with -only`)
	}
	b := &dynamodbBench{transport: &http.Transport{MaxIdleConnsPerHost: dynamodbCallers}, table: "bench" + rand.Text()}
	if err := b.open(ctx, url); err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	return []*contest{b.guarded(), b.replays(), b.transactions()}, b.close, nil
}

// RoundTrip counts a request.
func (b *dynamodbBench) RoundTrip(req *http.Request) (*http.Response, error) {
	b.requests.Add(1)
	return b.transport.RoundTrip(req)
}

func (b *dynamodbBench) open(ctx context.Context, url string) error {
	b.client = dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url, HTTPClient: &http.Client{Transport: b},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "bench", SecretAccessKey: "bench"}, nil
		}),
	})
	opts := &dynamostore.Options{Table: b.table}
	if err := dynamostore.Migrate(ctx, b.client, opts); err != nil {
		return err
	}
	store, err := dynamostore.NewTx(ctx, b.client, opts)
	if err != nil {
		return err
	}
	if b.tx, err = everonce.NewTxReceiver(store, &everonce.Options{Codec: everonce.Raw()}); err != nil {
		return err
	}
	if b.receiver, err = b.tx.Guarded(everonce.Refuse); err != nil {
		return err
	}
	for n := range int64(dynamodbKeys) { // the operations that are replayed later
		if err := errors.Join(b.perform(ctx, b.replayed(n), everonce.Executed), b.write(ctx, b.replayed(n))); err != nil {
			return err
		}
	}
	return nil
}

func (b *dynamodbBench) close() error {
	_, err := b.client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &b.table})
	b.transport.CloseIdleConnections()
	return err
}

// replayed is one of the existing keys: fewer than elsewhere, because they are made one by one.
func (b *dynamodbBench) replayed(n int64) everonce.Key { return knownKey(n % dynamodbKeys) }

func (b *dynamodbBench) perform(ctx context.Context, key everonce.Key, want everonce.Outcome) error {
	res, err := everonce.Do(ctx, b.receiver, key, func(context.Context, *everonce.Attempt) ([]byte, error) { return sampleBytes, nil })
	return expect(res.Outcome, want, err)
}

// handKey returns the key of an item that is written by hand.
func (b *dynamodbBench) handKey(key everonce.Key) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberB{Value: []byte("hand " + string(key.Scope) + key.ID)}, "sk": &types.AttributeValueMemberB{Value: []byte("hand")},
	}
}

// write is a lock and a result by hand: the two writes that there must be.
func (b *dynamodbBench) write(ctx context.Context, key everonce.Key) error {
	item := b.handKey(key)
	item["state"] = &types.AttributeValueMemberS{Value: "processing"}
	_, err := b.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &b.table, Item: item, ConditionExpression: aws.String("attribute_not_exists(pk)")})
	if err != nil {
		return err
	}
	_, err = b.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &b.table, Key: b.handKey(key), UpdateExpression: aws.String("SET #s = :s, #r = :r"),
		ExpressionAttributeNames: map[string]string{"#s": "state", "#r": "result"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":s": &types.AttributeValueMemberS{Value: "completed"}, ":r": &types.AttributeValueMemberB{Value: sampleBytes},
		},
	})
	return err
}

// guarded: new keys, and an effect elsewhere that costs nothing. The number of requests is promised.
func (b *dynamodbBench) guarded() *contest {
	bare := &way{name: "bare: put, update", do: func(ctx context.Context, n int64) error { return b.write(ctx, mailKey(n)) }}
	ours := &way{name: "ours", do: func(ctx context.Context, n int64) error { return b.perform(ctx, mailKey(n), everonce.Executed) }}
	return &contest{
		store: "DynamoDB", mode: "guarded, new keys", callers: dynamodbCallers, trips: &b.requests, ways: []*way{bare, ours},
		targets: []target{{
			what: "DynamoDB, guarded, new keys: requests per Do", want: 2, atMost: true,
			measured: func() float64 { return float64(ours.trips) / float64(ours.ops) },
		}},
	}
}

func (b *dynamodbBench) replays() *contest {
	bare := &way{name: "bare: get", do: func(ctx context.Context, n int64) error {
		got, err := b.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &b.table, Key: b.handKey(b.replayed(n)), ConsistentRead: aws.Bool(true)})
		if err == nil && got.Item["result"] == nil {
			err = errors.New("no result is stored")
		}
		return err
	}}
	ours := &way{name: "ours", do: func(ctx context.Context, n int64) error { return b.perform(ctx, b.replayed(n), everonce.Replayed) }}
	return &contest{store: "DynamoDB", mode: "guarded, replay", callers: dynamodbCallers, trips: &b.requests, ways: []*way{bare, ours}}
}

// transactions: one item and its record, or a lock in its place.
func (b *dynamodbBench) transactions() *contest {
	put := func(key everonce.Key, name string) types.Put {
		item := b.handKey(key)
		item["sk"] = &types.AttributeValueMemberB{Value: []byte(name)}
		item["result"] = &types.AttributeValueMemberB{Value: sampleBytes}
		return types.Put{TableName: &b.table, Item: item, ConditionExpression: aws.String("attribute_not_exists(pk)")}
	}
	bare := &way{name: "bare: get, transaction", do: func(ctx context.Context, n int64) error {
		if _, err := b.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &b.table, Key: b.handKey(orderKey(n)), ConsistentRead: aws.Bool(true)}); err != nil {
			return err
		}
		lock, effect := put(orderKey(n), "lock"), put(orderKey(n), "bare")
		_, err := b.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Put: &lock}, {Put: &effect}}})
		return err
	}}
	ours := &way{name: "ours", do: func(ctx context.Context, n int64) error {
		res, err := everonce.Transact(ctx, b.tx, orderKey(n), func(_ context.Context, tx *dynamostore.Tx) ([]byte, error) {
			return sampleBytes, tx.Put(put(orderKey(n), "ours"))
		})
		return expect(res.Outcome, everonce.Executed, err)
	}}
	return &contest{store: "DynamoDB", mode: "transactional, new keys", callers: dynamodbCallers, trips: &b.requests, ways: []*way{bare, ours}}
}
