package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirmation is what is asked before something that cannot be taken back.
type confirmation struct {
	question string
	instead  string // what to do where nobody can be asked
	no       error  // of every answer but yes
}

// confirmed asks whether it is meant.
func (a *app) confirmed(yes bool, c confirmation) error {
	if yes {
		return nil
	}
	if !isTerminal(a.in) {
		return usagef("cannot ask, because standard input is not a terminal (%s)", c.instead)
	}
	fmt.Fprint(a.err, c.question)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(a.err)
	}
	return c.no
}

// isTerminal reports whether somebody is at the other end of an input or an output.
func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
