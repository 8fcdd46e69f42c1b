package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// noArgs refuses arguments without repeating them: one may be a store's URL that was meant for --store,
// with its password.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes flags, and no other arguments; it was given %d", cmd.CommandPath(), len(args))
	}
	return nil
}

// commandName is what an argument looks like that was meant as a command, and may be repeated.
var commandName = regexp.MustCompile(`^[a-z-]{1,20}$`)

// aCommand refuses what is no command of cmd's, and says which are near.
func aCommand(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !commandName.MatchString(args[0]):
		return noArgs(cmd, args)
	}
	cmd.SuggestionsMinimumDistance = 2
	near := ""
	if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
		near = "; did you mean " + strings.Join(names, " or ") + "?"
	}
	return usagef("%s has no command %q%s", cmd.CommandPath(), args[0], near)
}

// complete offers the values of a flag to a shell's completion.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil { // there is no such flag
		panic(err)
	}
}
