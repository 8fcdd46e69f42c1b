package main

import (
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

const proxyLong = `proxy stands in front of an HTTP service in any language and gives it idempotency
keys: a POST or PATCH that carries Idempotency-Key is passed on once, and every
repetition gets the first answer, marked Idempotent-Replayed. The service needs no
change. Everything else passes through.

Tell it where to listen, which service is behind it, and where to keep answers. Clients
are told apart by their Authorization header. If that changes from request to request,
as a renewed token does, use --principal jwt:sub, and let something in front of the proxy
verify the token, because the proxy does not.

A request that was passed on and got no answer is "unknown": it may have taken effect.
It is answered 502, and its repetitions 409, until somebody settles it ("everonce keys
list --state abandoned", "everonce keys settle"). With --unknown reexecute it is sent
again, which is right only if the service itself recognises repetitions.

Settings come from flags, then from EVERONCE_… variables (--max-body is
EVERONCE_MAX_BODY), then from the YAML file of --config, which may also have settings
for each route:

  listen: :8080
  upstream: http://127.0.0.1:9000
  store: sqlite:proxy.db
  routes:
    "POST /payments":
      required: true
      retention: 90d

SIGTERM lets running requests end; a second SIGTERM ends the proxy at once.
Metrics and health are on a second address, --admin, which only this machine reaches
unless you change that.`

const proxyNeeds = `proxy needs %s, like
  everonce proxy --listen :8080 --upstream http://127.0.0.1:9000 --store sqlite:proxy.db`

// configVariable names the environment variable that stands in for --config.
const configVariable = config.EnvPrefix + "CONFIG"

// proxyName is the name of the proxy command.
const proxyName = "proxy"

// proxy returns the command that runs the proxy.
func (a *app) proxy() *cobra.Command {
	var file string
	var printConfig bool
	cmd := &cobra.Command{
		Use:   proxyName,
		Short: "Stand in front of an HTTP service in any language, and give it idempotency keys",
		Long:  proxyLong,
		Example: "  everonce proxy --listen :8080 --upstream http://127.0.0.1:9000 --store sqlite:proxy.db\n" +
			"  everonce proxy --config proxy.yaml --print-config\n" +
			"  EVERONCE_STORE=postgres://user:password@db/keys everonce proxy --config proxy.yaml",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			switch {
			case file == "" && cmd.Flags().Changed("config"): // all of its settings would be missing
				return usagef("--config: %w", config.ErrEmpty)
			case file == "":
				file = os.Getenv(configVariable)
			}
			return a.runProxy(cmd, file, printConfig)
		}),
	}
	config.AddFlags(cmd.Flags())
	for _, f := range config.Fields() {
		if words := f.Words(); words != nil {
			complete(cmd, f.Key, words...)
		}
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&file, "config", "", "YAML file with settings (default $"+configVariable+")")
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "write the resulting settings, without secrets, report which of them a start would refuse, and exit")
	return cmd
}

func (a *app) runProxy(cmd *cobra.Command, file string, printConfig bool) error {
	conf, strangers, err := config.Load(cmd.Flags(), os.Environ(), file)
	if err != nil {
		return usagef("%w", err)
	}
	lines := a.out // of the log
	if printConfig {
		text, err := conf.YAML()
		if err == nil {
			_, err = a.out.Write(text)
		}
		if err != nil {
			return err
		}
		lines = a.err
	}
	if missing := missingOf(conf); missing != "" {
		return usagef(proxyNeeds, missing)
	}
	log := slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: level(conf.LogLevel)}))
	for _, name := range strangers {
		if !strings.HasPrefix(name, config.EnvPrefix+"TEST_") {
			log.Warn("unknown environment variable", "name", name)
		}
	}
	secrets := []secretFile{{"identity-secret-file", conf.Secret}, {"tls-key", conf.TLSKey}, {"upstream-tls-key", conf.UpstreamTLSKey}}
	if !cmd.Flags().Changed("store") && os.Getenv(storeVariable) == "" && storeurl.Shown(conf.Store) != conf.Store {
		secrets = append(secrets, secretFile{"config", file}) // which has the store's password
	}
	warnReadable(log, secrets)
	if printConfig {
		return proxyError(proxy.Check(conf, log))
	}
	// From here on, two signals are expected: the first ends main's context.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, endings()...)
	defer signal.Stop(signals)
	// net/http logs unexpected bytes on the upstream's connections to the default logger: they may be part of an answer.
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer())
	srv, err := proxy.New(cmd.Context(), conf, log)
	if err != nil {
		return proxyError(err)
	}
	now := make(chan struct{})
	go func() {
		<-signals
		<-signals
		close(now)
	}()
	return srv.Run(cmd.Context(), now)
}

// secretFile is a file with a secret, and the setting that names it.
type secretFile struct{ setting, file string }

// warnReadable warns of files whose mode lets every user of the machine read them. It does not check the folders above,
// which may protect them.
func warnReadable(log *slog.Logger, files []secretFile) {
	for _, f := range files {
		info, err := os.Stat(f.file)
		if err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
			log.Warn("a file with a secret can be read by every user of this machine", "setting", f.setting, "file", f.file)
		}
	}
}

// proxyError tells errors in settings from other errors.
func proxyError(err error) error {
	if errors.Is(err, config.ErrInvalid) {
		return usagef("%w", err)
	}
	return err
}

// missingOf returns the required settings that are missing.
func missingOf(c *config.Config) string {
	var missing []string
	for _, need := range []struct{ value, flag string }{
		{c.Listen, "--listen ADDR"},
		{c.Upstream, "--upstream URL (the service behind it)"},
		{c.Store, "--store sqlite:FILE, postgres://…, mysql://…, redis://…, mongodb://…, dynamodb://… or memory:"},
	} {
		if need.value == "" {
			missing = append(missing, need.flag)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	if last := len(missing) - 1; last > 0 {
		return strings.Join(missing[:last], ", ") + " and " + missing[last]
	}
	return missing[0]
}

func level(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil { // config has checked it
		panic(fmt.Sprintf("log level %q: %v", name, err))
	}
	return l
}
