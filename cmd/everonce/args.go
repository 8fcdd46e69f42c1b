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
		return usagef("%s takes flags and no other arguments, but was given %d", called(cmd), len(args))
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
	return usagef("%s has no command %q%s", called(cmd), args[0], near)
}

// called is what a message calls a command: the name of the program stands before it already.
func called(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return "the program"
	}
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// ownCommands takes the commands that cobra adds by itself under the rules of ours: what they do not know is a fault, and not a page
// of help that a script takes for what it asked for.
func ownCommands(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil {
					return err
				}
				return aCommand(found, rest)
			}
		case "completion":
			cmd.Args = aCommand
			cmd.RunE = func(*cobra.Command, []string) error {
				return usagef("completion needs a shell: bash, zsh, fish or powershell")
			}
			for _, shell := range cmd.Commands() {
				shell.Args = noArgs
			}
		}
	}
}

// complete offers the values of a flag to a shell's completion.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil { // there is no such flag
		panic(err)
	}
}
