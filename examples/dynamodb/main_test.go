package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/internal/testing/testserver"
)

const want = `
order-7: executed, 600
order-7: replayed, 600
order-8: failed, the limit is reached
order-7: replayed, 600
`

// TestRun charges, and looks at the account.
func TestRun(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": testserver.URL(t, "dynamodb"), "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, records, accounts := dynamodb.NewFromConfig(cfg), "example"+rand.Text(), "accounts"+rand.Text()
	t.Cleanup(func() {
		for _, table := range []string{records, accounts} {
			if _, err := client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table}); err != nil {
				t.Error(err)
			}
		}
	})
	var out strings.Builder
	if err := run(t.Context(), &out, records, accounts); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
	got, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &accounts, Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "alice"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if spent, _ := got.Item["spent"].(*types.AttributeValueMemberN); spent == nil || spent.Value != "600" {
		t.Errorf("the account is %v, want 600 spent", got.Item)
	}
}
