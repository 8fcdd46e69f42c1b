// Command testreport reads the JSON of `go test -json` and writes what a person wants to see: a line for
// each package, the whole output of what failed, what was skipped and why, and the totals. It exits 1 if
// anything failed, or if nothing ran at all.
//
//	go test -json ./... | testreport [-show REGEXP] [-totals FILE] [-failures FILE] [-times FILE]
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
)

func main() {
	show := flag.String("show", "", "show the output of tests that match `REGEXP`, passed ones too")
	totals := flag.String("totals", "", "write the totals, one line, to `FILE`")
	failures := flag.String("failures", "", "append the names of what failed to `FILE`, and the beginning and end of what it wrote")
	times := flag.String("times", "", "append the seconds of each test, without its subtests, and its name to `FILE`")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *show, *totals, *failures, *times); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, show, totals, failures, times string) error {
	r := newReport(out)
	if show != "" {
		re, err := regexp.Compile(show)
		if err != nil {
			return err
		}
		r.show = re
	}
	if err := r.read(in); err != nil {
		return err
	}
	r.finish()
	if totals != "" {
		if err := os.WriteFile(totals, []byte(r.totals()+"\n"), 0o600); err != nil {
			return err
		}
	}
	if failures != "" {
		if err := appendTo(failures, r.digest()); err != nil {
			return err
		}
	}
	if times != "" {
		if err := appendTo(times, r.times()); err != nil {
			return err
		}
	}
	return r.verdict()
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
