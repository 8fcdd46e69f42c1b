package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.yaml.in/yaml/v3"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/dynamostore"
)

// A table of the page's CloudFormation text is one that the store takes, and Terraform's text has the same keys.
func TestTableOfTheDynamoDBPage(t *testing.T) {
	client, table := pagesTable(t)
	s, err := dynamostore.New(t.Context(), client, &dynamostore.Options{Table: table})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := s.Health(t.Context(), driver.HealthRequest{}); err != nil || len(h.Notes) != 1 { // the note about clocks, and none about the TTL
		t.Errorf("Health: %q, %v", h.Notes, err)
	}
	_, terraform, _ := strings.Cut(readPage(t, "how-to/records-in-dynamodb.md"), "Terraform:")
	for _, line := range []string{`hash_key = "pk"`, `range_key = "sk"`, `name = "pk" type = "B"`, `name = "sk" type = "B"`, `ttl { attribute_name = "ttl" enabled = true`} {
		if !strings.Contains(strings.Join(strings.Fields(terraform), " "), line) {
			t.Errorf("Terraform's text lacks %s", line)
		}
	}
}

// pagesTable makes a table from the page's text for CloudFormation.
func pagesTable(t *testing.T) (client *dynamodb.Client, table string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_CONFIG_FILE": "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL_DYNAMODB": testserver.URL(t, "dynamodb"),
	} {
		t.Setenv(name, value)
	}
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, table = dynamodb.NewFromConfig(cfg), "u"+rand.Text()
	var stack map[string]struct {
		Properties map[string]any `yaml:"Properties"`
	}
	if err := yaml.Unmarshal([]byte(blocks(t, "how-to", "records-in-dynamodb.md", "yaml")[0]), &stack); err != nil {
		t.Fatal(err)
	}
	stack["Everonce"].Properties["TableName"] = table
	text, err := json.Marshal(stack["Everonce"].Properties)
	if err != nil {
		t.Fatal(err)
	}
	var create dynamodb.CreateTableInput // CloudFormation has the names of the API
	var ttl dynamodb.UpdateTimeToLiveInput
	for _, input := range []any{&create, &ttl} {
		if err := json.Unmarshal(text, input); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.CreateTable(t.Context(), &create); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table}) })
	if _, err := client.UpdateTimeToLive(t.Context(), &ttl); err != nil {
		t.Fatal(err)
	}
	return client, table
}

// A proxy works in an existing table with the permissions that the page lists for work, and does not scan it again and
// again, because reads cost money.
func TestProxyOnDynamoDB(t *testing.T) {
	_, table := pagesTable(t)
	row := regexp.MustCompile(`(?m)^\| work, .*\| (.*) \|$`).FindStringSubmatch(readPage(t, "how-to/records-in-dynamodb.md"))
	if row == nil {
		t.Fatal("the page has no row of permissions for work")
	}
	server, err := url.Parse(testserver.URL(t, "dynamodb"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var refused []string
	pass := httputil.NewSingleHostReverseProxy(server)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if strings.Contains(row[1], "`"+action+"`") {
			pass.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		refused = append(refused, action)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not authorized"}`)
	}))
	t.Cleanup(front.Close)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "paid") }))
	t.Cleanup(service.Close)
	cmd, at, _ := runProxy(t, service.URL, "--store", "dynamodb://"+table+"?endpoint="+url.QueryEscape(front.URL))
	for i, marker := range []string{"", "true"} {
		if res, body := insist(t, at, "amount=1", "Idempotency-Key", "k"); body != "paid" || res.Header.Get("Idempotent-Replayed") != marker {
			t.Errorf("request %d: %d %q %v", i, res.StatusCode, body, res.Header)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the proxy: %v\n%s", err, cmd.Stderr)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(refused, []string{"DescribeTimeToLive", "Scan"}) { // looks at the start: at the TTL, and whether this is a new table
		t.Errorf("it asked for what it has no permission for: %v", refused)
	}
}
