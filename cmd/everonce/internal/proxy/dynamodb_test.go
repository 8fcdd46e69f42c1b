package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/internal/testserver"
)

// A table whose TTL is off keeps its records: a proxy switches it on, or says so if it may not. A table of a newer
// version is not created again.
func TestTheTTLOfADynamoDBTable(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	server, err := url.Parse(testserver.URL(t, "dynamodb"))
	if err != nil {
		t.Fatal(err)
	}
	var denied atomic.Value
	pass := httputil.NewSingleHostReverseProxy(server)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if !strings.Contains(denied.Load().(string), action) {
			pass.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not authorized"}`)
	}))
	t.Cleanup(front.Close)
	table := "u" + rand.Text()
	store := "dynamodb://" + table + "?endpoint=" + url.QueryEscape(front.URL)
	open := func() (storeurl.Store, error) {
		opener, err := storeurl.Prepare(store, storeurl.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return opener(t.Context())
	}

	denied.Store("UpdateTimeToLive")
	if _, err := open(); err == nil { // as after a kill before the TTL, the table exists now
		t.Fatal("a table without TTL was created in silence")
	}
	for _, not := range []string{"CreateTable, DescribeTimeToLive", "CreateTable, UpdateTimeToLive", "CreateTable"} { // the last one switches it on
		denied.Store(not)
		p := start(t, func(http.ResponseWriter, *http.Request) {}, "--store="+store)
		if told, _ := p.logged(t, "the table's TTL is off"); len(told) > 0 == (not == "CreateTable") {
			t.Errorf("without the permissions %s the log is %s", not, p.log)
		}
	}

	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { o.BaseEndpoint = aws.String(server.String()) })
	t.Cleanup(func() { client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table}) })
	if res, err := client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &table}); err != nil || aws.ToString(res.TimeToLiveDescription.AttributeName) != "ttl" {
		t.Errorf("the TTL is not on: %+v, %v", res, err)
	}
	once := &types.AttributeValueMemberB{Value: []byte("everonce")}
	if _, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &table, Key: map[string]types.AttributeValue{"pk": once, "sk": once},
		UpdateExpression: aws.String("SET layout = :l"), ExpressionAttributeValues: map[string]types.AttributeValue{":l": &types.AttributeValueMemberN{Value: "2"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); !errors.Is(err, everonce.ErrSchema) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("a table of a newer version, without the permission to create one: %v, want ErrSchema", err)
	}
}
