package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirmation is the question before something that cannot be undone.
type confirmation struct {
	question string
	instead  string // what to do if the question cannot be asked
	no       error  // the error for any answer but yes
}

// confirmed asks for confirmation, unless yes is set.
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

// isTerminal reports whether an input or output is a terminal.
func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
