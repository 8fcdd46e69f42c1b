// Command bugtable joins the tables of planted bugs that runs of the conformance suite have written, one
// for each store, to one in Markdown: bug × store, each cell with the test that catches it.
//
//	mkdir bugs && EVERONCE_BUG_TABLE=$PWD/bugs go test work && go run ./driver/drivertest/bugtable bugs
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bugtable FOLDER")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "bugtable:", err)
		os.Exit(1)
	}
}

// column is what one run has found.
type column struct {
	name  string
	bugs  []string
	cells map[string]string
}

func run(w io.Writer, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.tsv"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no table in %s: run the tests with EVERONCE_BUG_TABLE set to that folder", dir)
	}
	slices.Sort(files)
	var columns []column
	var bugs []string
	for _, f := range files {
		c, err := read(f)
		if err != nil {
			return err
		}
		columns = append(columns, c)
		for _, b := range c.bugs {
			if !slices.Contains(bugs, b) {
				bugs = append(bugs, b)
			}
		}
	}
	return write(w, bugs, columns)
}

// read reads a table: the bug, what catches it, and how it showed.
func read(file string) (c column, err error) {
	f, err := os.Open(file) //nolint:gosec // the folder is the caller's choice
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	name := strings.TrimSuffix(filepath.Base(file), ".tsv")
	name = strings.TrimSuffix(name, "_PlantedBugs")
	c = column{name: strings.Replace(name, ".test_", " ", 1), cells: make(map[string]string)}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), "\t", 3)
		if len(parts) != 3 {
			return c, fmt.Errorf("%s: not a table: %q", file, lines.Text())
		}
		cell := parts[1]
		if cell == "not applicable" {
			cell += ": " + parts[2]
		}
		c.bugs = append(c.bugs, parts[0])
		c.cells[parts[0]] = cell
	}
	return c, lines.Err()
}

func write(w io.Writer, bugs []string, columns []column) error {
	var b strings.Builder
	b.WriteString("| bug |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|" + strings.Repeat(" --- |", len(columns)+1) + "\n")
	for _, bug := range bugs {
		fmt.Fprintf(&b, "| %s |", bug)
		for _, c := range columns {
			cell, ok := c.cells[bug]
			if !ok {
				cell = "–"
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
