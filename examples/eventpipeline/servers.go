package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// The variables that name servers that run already. Without any of them the program starts its own.
const (
	rabbitVariable   = "EVENTPIPELINE_RABBITMQ_URL"
	mongoVariable    = "EVENTPIPELINE_MONGODB_URL"
	postgresVariable = "EVENTPIPELINE_POSTGRES_URL"
)

// servers are the broker and the databases of a run.
type servers struct {
	rabbitURL, mongoURL, postgresURL string
	// restart kills the broker and starts it again; nil where that cannot be done.
	restart func(context.Context) error
	// down stops what was started here.
	down func() error
}

// openServers takes the servers that are named, or starts private ones. restartCommand is for the former.
func openServers(ctx context.Context, getenv func(string) string, restartCommand string, withPostgres bool) (*servers, error) {
	rabbitURL, mongoURL, postgresURL := getenv(rabbitVariable), getenv(mongoVariable), getenv(postgresVariable)
	if (rabbitURL == "") != (mongoURL == "") || withPostgres && (rabbitURL == "") != (postgresURL == "") {
		return nil, fmt.Errorf("set both %s and %s, and for -with %s, or none of them", rabbitVariable, mongoVariable, postgresVariable)
	}
	if rabbitURL == "" {
		return startServers(ctx, withPostgres)
	}
	s := &servers{rabbitURL: rabbitURL, mongoURL: mongoURL, postgresURL: postgresURL, down: func() error { return nil }}
	if restartCommand != "" {
		s.restart = func(ctx context.Context) error {
			_, err := output(exec.CommandContext(ctx, "bash", "-c", restartCommand)) //nolint:gosec // the user's own
			return err
		}
	}
	return s, nil
}

// startServers starts a broker and the databases by the project's script, each in a separate folder: so they start at
// the same time, and no other project's servers are restarted.
func startServers(ctx context.Context, withPostgres bool) (*servers, error) {
	script, err := findScript()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "everonce-pipeline-")
	if err != nil {
		return nil, err
	}
	// The script finishes its work, even after Ctrl-C: a start that was cut off would go on behind a stop, and leave a
	// server.
	call := func(command, server string) (string, error) {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), script, command, server) //nolint:gosec // found above
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "EVERONCE_") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "EVERONCE_SERVICES_DIR="+filepath.Join(dir, server), "EVERONCE_NO_DOCKER=1")
		return output(cmd)
	}
	names := []string{"rabbitmq", "mongodb"}
	if withPostgres {
		names = append(names, "postgres")
	}
	all := func(command string) (said string, err error) {
		outs, errs := make([]string, len(names)), make([]error, len(names))
		var calls sync.WaitGroup
		for i, name := range names {
			calls.Go(func() { outs[i], errs[i] = call(command, name) })
		}
		calls.Wait()
		return strings.Join(outs, "\n"), errors.Join(errs...)
	}
	s := &servers{
		restart: func(context.Context) error { _, err := call("restart", "rabbitmq"); return err },
		down: func() error {
			_, err := all("down")
			return errors.Join(err, os.RemoveAll(dir))
		},
	}
	if _, err := all("up"); err != nil {
		return nil, errors.Join(err, s.down())
	}
	env, err := all("env")
	if err = errors.Join(err, context.Cause(ctx)); err != nil {
		return nil, errors.Join(err, s.down())
	}
	s.rabbitURL, s.mongoURL = exported(env, "EVERONCE_TEST_RABBITMQ_URL"), exported(env, "EVERONCE_TEST_MONGODB_URL")
	s.postgresURL = exported(env, "EVERONCE_TEST_POSTGRES_URL")
	return s, nil
}

// findScript looks for the project's script in the folders above.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		file := filepath.Join(dir, "scripts", "services")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("run it inside the checkout, whose scripts/services starts servers, or set %s and %s", rabbitVariable, mongoVariable)
		}
		dir = filepath.Dir(dir)
	}
}

// exported returns the value of a variable from lines such as: export NAME=value.
func exported(lines, name string) string {
	for line := range strings.Lines(lines) {
		if _, value, ok := strings.Cut(strings.TrimSpace(line), name+"="); ok {
			return strings.Trim(value, `'"`)
		}
	}
	return ""
}

// output runs a command, whose error has what it said.
func output(cmd *exec.Cmd) (string, error) {
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}
