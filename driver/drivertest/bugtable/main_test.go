package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTablesAreJoined(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"memstore.test_TestConformance_PlantedBugs.tsv": "no fence\tRule03/Late\tComplete: nil\nretry\tnot applicable\tno transactions\n",
		"sqlite.test_TestTx_PlantedBugs.tsv":            "retry\tRule17/Nothing\tretried\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := run(&b, dir); err != nil {
		t.Fatal(err)
	}
	const want = `| bug | memstore TestConformance | sqlite TestTx |
| --- | --- | --- |
| no fence | Rule03/Late | – |
| retry | not applicable: no transactions | Rule17/Nothing |
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestNoTable(t *testing.T) {
	if err := run(&strings.Builder{}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "EVERONCE_BUG_TABLE") {
		t.Errorf("an empty folder: %v; want what to do", err)
	}
}
