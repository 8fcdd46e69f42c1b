package dynamostore_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/leaks"
	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/dynamostore"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect makes a client of the server at a URL.
func connect(url string, change ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}, change...)
}

var clients sync.Map // by the URL

func client(t testing.TB) *dynamodb.Client {
	t.Helper()
	url := testserver.URL(t, "dynamodb")
	c, _ := clients.LoadOrStore(url, sync.OnceValue(func() *dynamodb.Client { return connect(url) }))
	return c.(func() *dynamodb.Client)()
}

// newTable makes a table that no other test uses, and which is dropped in the end.
func newTable(t testing.TB) string {
	t.Helper()
	c, name := client(t), "t"+rand.Text()
	noErr(t, dynamostore.Migrate(t.Context(), c, &dynamostore.Options{Table: name}))
	t.Cleanup(func() {
		if _, err := c.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
			t.Errorf("drop: %v", err)
		}
	})
	return name
}

// newStore makes a store for tests of one process, whose clock has no skew.
func newStore(t testing.TB, table string) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(t.Context(), client(t), &dynamostore.Options{Table: table, ClockSkew: -1})
	noErr(t, err)
	return s
}

// alter writes attributes of a record by hand.
func alter(t testing.TB, table string, id driver.RecordID, path string, value types.AttributeValue) {
	t.Helper()
	names := map[string]string{"#0": path}
	update := "SET #0 = :v"
	_, err := client(t).UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &table, Key: dynamostore.Key(id), UpdateExpression: &update, ConditionExpression: aws.String("attribute_exists(pk)"),
		ExpressionAttributeNames: names, ExpressionAttributeValues: map[string]types.AttributeValue{":v": value},
	})
	noErr(t, err)
}

// errOf is the error of a call whose result is empty.
func errOf[R any](_ R, err error) error { return err }
