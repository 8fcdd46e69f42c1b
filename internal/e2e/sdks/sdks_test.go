package sdks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/httponce"
)

// sdk is one that is run. Those without whole are run with -short, too.
type sdk struct {
	name     string // in the table
	language string // of scripts/sdks
	command  []string
	whole    bool
}

var sdks = []sdk{
	{"stripe-go", "go", []string{"./client"}, false},
	{"stripe-node", "node", []string{"node", "client.mjs", "stripe"}, false},
	{"stripe-python", "python", []string{"env/bin/python", "client.py", "stripe"}, true},
	{"stripe-java", "java", []string{"java", "-cp", "lib/*:.", "Client"}, true},
	{"openai", "node", []string{"node", "client.mjs", "openai"}, true},
	{"anthropic", "node", []string{"node", "client.mjs", "anthropic"}, true},
	{"dodopayments", "node", []string{"node", "client.mjs", "dodopayments"}, true},
	{"svix", "node", []string{"node", "client.mjs", "svix"}, true},
	{"square", "node", []string{"node", "client.mjs", "square"}, true},
	{"azure-core", "python", []string{"env/bin/python", "client.py", "azure-core"}, true},
}

// report is the report of a client program about one row.
type report struct {
	Row     string `json:"row"`
	Success bool   `json:"success"`
	ID      string `json:"id"`
	Class   string `json:"class"`
	Status  any    `json:"status"`
	Text    string `json:"text"`
}

// cell is what the table says of an SDK's view: the class of its error, and how often it sent the request.
func (r report) cell(attempts int) string {
	seen := "`" + strings.TrimPrefix(r.Class, "*") + "`"
	switch {
	case r.Success && r.ID != "":
		seen = "done"
	case r.Success:
		seen = "done, empty"
	}
	return fmt.Sprintf("%s %d×", seen, attempts)
}

// place returns the folder with an SDK, which scripts/sdks installs where it is missing.
func (s sdk) place(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "..", "scripts", "sdks"), s.language)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("scripts/sdks %s: %v\n%s", s.language, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// run sends one request per row with an SDK, all at once, and returns what it made of each, and how often each was
// sent.
func (s sdk) run(t *testing.T, rows []row, profile httponce.Profile) (by map[string]report, attempts map[string]int) {
	t.Helper()
	var in bytes.Buffer
	services := map[string]*service{}
	for _, r := range rows {
		svc := newService(t, r, profile)
		server := httptest.NewServer(svc)
		t.Cleanup(server.Close)
		services[r.name] = svc
		noErr(t, json.NewEncoder(&in).Encode(map[string]string{"row": r.name, "base": server.URL, "key": "key-1"}))
	}
	place := s.place(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Dir = place
	if strings.Contains(s.command[0], "/") {
		cmd.Path = filepath.Join(cmd.Dir, s.command[0])
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", s.name, err, out, &stderr)
	}
	by, attempts = map[string]report{}, map[string]int{}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var r report
		noErr(t, lines.Decode(&r))
		by[r.Row], attempts[r.Row] = r, services[r.Row].sent()
	}
	if len(by) != len(rows) {
		t.Fatalf("%s answered %d of %d requests\n%s", s.name, len(by), len(rows), &stderr)
	}
	return by, attempts
}

// table is the page that lists what each SDK makes of each answer.
const table = "../../../docs/reference/sdks.md"

// cells returns the table's cells by row and SDK.
func cells(t *testing.T) map[[2]string]string {
	t.Helper()
	text, err := os.ReadFile(table)
	noErr(t, err)
	cells := map[[2]string]string{}
	var head []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") {
			head = nil
			continue
		}
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if head == nil {
			head = row
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(row[0], "["), "]")
		for i := 1; i < len(row) && i < len(head); i++ {
			cells[[2]string{name, head[i]}] = row[i]
		}
	}
	return cells
}

// Every refusal of everonce's is an error to every SDK, and its error is the one that the table has.
func TestNoRefusalIsASuccess(t *testing.T) {
	documented := cells(t)
	for _, s := range sdks {
		if s.whole && testing.Short() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			rows := rows()
			by, attempts := s.run(t, rows, httponce.ProfileStripe)
			for _, r := range rows {
				got := by[r.name]
				if got.Success && !r.success {
					t.Errorf("%s: a success, with the ID %q", r.name, got.ID)
				}
				if cell := got.cell(attempts[r.name]); documented[[2]string{r.name, s.name}] != cell {
					t.Errorf("%s: docs/reference/sdks.md has %q, want %q (%v %s)", r.name, documented[[2]string{r.name, s.name}], cell, got.Status, got.Text)
				}
			}
		})
	}
}

// Without the profile stripe-node takes a refusal for a success: the test above can fail.
func TestWithoutTheProfileARefusalIsASuccess(t *testing.T) {
	var all []row
	for _, r := range rows() {
		if r.name == "in-progress" || r.name == "key-reused" || r.name == "upstream-lost" {
			all = append(all, r)
		}
	}
	for _, s := range sdks {
		if s.name != "stripe-node" {
			continue
		}
		by, _ := s.run(t, all, httponce.ProfileDefault)
		for name, got := range by {
			if !got.Success || got.ID != "" {
				t.Errorf("%s: %+v, want a success without an ID", name, got)
			}
		}
	}
}
