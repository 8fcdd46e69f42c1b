package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The charts of the figures are drawn from the table beside them.
func TestChartsAreOfTheTable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "figures")
	if err := run("../../docs/reference/figures.md", name); err != nil {
		t.Fatal(err)
	}
	for _, theme := range []string{"-light.svg", "-dark.svg"} {
		want, err := os.ReadFile(name + theme)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile("../../docs/reference/figures" + theme); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/reference/figures%s is not drawn from figures.md (run go run ./bench/chart docs/reference/figures.md docs/reference/figures): %v", theme, err)
		}
	}
}

// A page without a whole table is an error, not an empty chart.
func TestNoTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("# Figures\n\nstore      mode\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(file, file); err == nil {
		t.Error("a chart was drawn of no table")
	}
}
