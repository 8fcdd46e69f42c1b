package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
	"github.com/everonce/everonce/internal/testserver"
)

// manifest is what the test looks at of the page's deployment.
type manifest struct {
	Spec struct {
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []podContainer
				Volumes                       []podVolume
			}
		}
	}
}

type podVolume struct {
	Name     string
	EmptyDir struct {
		SizeLimit string `yaml:"sizeLimit"`
	} `yaml:"emptyDir"`
	Secret struct{ Items []struct{ Path string } }
}

type podContainer struct {
	Name         string
	Args         []string
	Env          []struct{ Name, Value string }
	Ports        []podPort
	StartupProbe podProbe `yaml:"startupProbe"`
	Readiness    podProbe `yaml:"readinessProbe"`
	Liveness     podProbe `yaml:"livenessProbe"`
	Lifecycle    struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	VolumeMounts []podMount `yaml:"volumeMounts"`
}

type podMount struct {
	Name      string
	MountPath string `yaml:"mountPath"`
}

type podPort struct {
	Name          string
	ContainerPort int `yaml:"containerPort"`
}

type podProbe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	PeriodSeconds    int                         `yaml:"periodSeconds"`
	FailureThreshold int                         `yaml:"failureThreshold"`
}

// The page's deployment starts a proxy that does its work, and answers its probes, at every address. Its times fit
// together: a service goes on for longer than its proxy, and both end before they are killed.
func TestManifestOfTheHowTo(t *testing.T) {
	var m manifest
	if err := yaml.Unmarshal([]byte(blocks(t, "how-to", "run-in-containers.md", "yaml")[0]), &m); err != nil {
		t.Fatal(err)
	}
	pod := m.Spec.Template.Spec
	service, proxy := pod.Containers[0], pod.Containers[1]
	if service.Name != "service" || proxy.Name != "proxy" {
		t.Fatalf("the containers are %+v", pod.Containers)
	}
	if own := service.Args[len(service.Args)-1]; !slices.Contains(proxy.Args, "--upstream=http://"+own) || !strings.HasPrefix(own, "127.0.0.1:") {
		t.Errorf("the service listens at %s, and the proxy's arguments are %q", own, proxy.Args)
	}

	var calls atomic.Int32
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		calls.Add(1)
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(behind.Close)
	ports := map[string]string{} // by name
	var there []string
	for _, p := range proxy.Ports {
		ports[p.Name] = fmt.Sprint(testserver.FreePort(t))
		there = append(there, fmt.Sprintf("=:%d", p.ContainerPort), "=:"+ports[p.Name])
	}
	there = append(there, "http://127.0.0.1:9000", behind.URL)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "identity"), []byte(strings.Repeat("x", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("everonce", strings.Fields(strings.NewReplacer(there...).Replace(strings.Join(proxy.Args, " ")))...)
	cmd.Env = append(os.Environ(), noRace)
	for _, e := range proxy.Env {
		switch e.Name {
		case "EVERONCE_STORE":
			e.Value = "sqlite:" + filepath.Join(dir, "proxy.db")
		case "EVERONCE_IDENTITY_SECRET_FILE":
			if v := mounted(pod.Volumes, proxy, filepath.Dir(e.Value)); v == nil || len(v.Secret.Items) != 1 || v.Secret.Items[0].Path != filepath.Base(e.Value) {
				t.Errorf("%s is not what is mounted: %+v", e.Value, v)
			}
			e.Value = filepath.Join(dir, filepath.Base(e.Value))
		}
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	runs := startProxy(t, cmd)
	for name, addr := range map[string]string{"http": runs.Listen, "admin": runs.Admin} {
		if at, err := netip.ParseAddrPort(addr); err != nil || !at.Addr().IsUnspecified() || fmt.Sprint(at.Port()) != ports[name] {
			t.Errorf("%s is reached at %s (%v), want every address: the kubelet uses the pod's", name, addr, err)
		}
	}
	for i, marker := range []string{"", "true"} {
		res, body := insist(t, "http://127.0.0.1:"+ports["http"]+"/pay", "amount=1", "Idempotency-Key", "k")
		if res.StatusCode != http.StatusCreated || res.Header.Get("Idempotent-Replayed") != marker {
			t.Errorf("request %d: %d %s %v", i, res.StatusCode, body, res.Header)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the service was called %d times, want once", n)
	}
	if toService := service.Readiness.HTTPGet; toService.Port != fmt.Sprint(proxy.Ports[0].ContainerPort) {
		t.Errorf("the kubelet probes the service at %s, where it does not listen", toService.Port)
	}
	service.Readiness.HTTPGet.Port = proxy.Ports[0].Name
	for name, p := range map[string]podProbe{"startup": proxy.StartupProbe, "readiness": proxy.Readiness, "liveness": proxy.Liveness, "the service's": service.Readiness} {
		res, err := http.Get("http://127.0.0.1:" + ports[p.HTTPGet.Port] + p.HTTPGet.Path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s, %s at %s: %d", name, p.HTTPGet.Path, p.HTTPGet.Port, res.StatusCode)
		}
	}

	flags := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	config.AddFlags(flags)
	defaults, _, err := config.Load(flags, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	proxyEnds := time.Duration(proxy.Lifecycle.PreStop.Sleep.Seconds)*time.Second + defaults.DrainTimeout
	serviceEnds, killed := time.Duration(service.Lifecycle.PreStop.Sleep.Seconds)*time.Second, time.Duration(pod.TerminationGracePeriodSeconds)*time.Second
	if proxyEnds >= serviceEnds || serviceEnds >= killed {
		t.Errorf("the proxy ends after %v, its service is told to after %v, and both are killed after %v", proxyEnds, serviceEnds, killed)
	}
	if opens := proxy.StartupProbe.PeriodSeconds * proxy.StartupProbe.FailureThreshold; opens <= 60 { // within that the proxy itself gives up
		t.Errorf("it is killed when its store has not opened after %d s", opens)
	}
	tmp := mounted(pod.Volumes, proxy, "/tmp")
	if tmp == nil {
		t.Fatal("nothing is mounted at /tmp")
	}
	var limit int64
	if _, err := fmt.Sscanf(tmp.EmptyDir.SizeLimit, "%dGi", &limit); err != nil || limit<<30 <= defaults.MaxSpool {
		t.Errorf("bodies may take %d bytes, and there is room for %s (%v)", defaults.MaxSpool, tmp.EmptyDir.SizeLimit, err)
	}
}

// proxyRuns is what a proxy logs when it has begun.
type proxyRuns struct{ Msg, Listen, Admin string }

// startProxy starts a proxy, and returns when it has begun. It ends with the test.
func startProxy(t *testing.T, cmd *exec.Cmd) (runs proxyRuns) {
	t.Helper()
	log, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(io.TeeReader(log, &said))
	for runs.Msg != "proxy runs" && lines.Scan() {
		if json.Unmarshal(lines.Bytes(), &runs) != nil {
			break // what is no log is an error
		}
	}
	var rest sync.WaitGroup
	rest.Go(func() { io.Copy(&said, log) })
	end := func() {
		cmd.Process.Signal(os.Interrupt)
		defer time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }).Stop()
		rest.Wait()
		cmd.Wait()
	}
	if runs.Msg != "proxy runs" {
		end()
		t.Fatalf("the proxy has not begun: %s", said.String())
	}
	t.Cleanup(func() {
		if end(); cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("the proxy ended with %d: %s", cmd.ProcessState.ExitCode(), said.String())
		}
	})
	return runs
}

// mounted returns the volume that a container has at a path.
func mounted(volumes []podVolume, c podContainer, path string) *podVolume {
	for _, m := range c.VolumeMounts {
		for i, v := range volumes {
			if m.MountPath == path && m.Name == v.Name {
				return &volumes[i]
			}
		}
	}
	return nil
}
