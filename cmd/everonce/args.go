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

// commandName matches an argument that looks like a command name, and that an error may repeat.
var commandName = regexp.MustCompile(`^[a-z-]{1,20}$`)

// aCommand rejects an argument that is not a subcommand of cmd, and suggests similar names.
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

// called returns the name of a command for a message, without the program's name, which already precedes it.
func called(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return "the program"
	}
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// ownCommands makes the commands that cobra adds automatically reject unknown arguments. Otherwise they would print a
// help page, which a script could mistake for the output that it asked for.
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
