package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/test/blobtest"
	"millrace/test/modeltest"
)

// badEnvironment: exit code 2, and a line on standard error for every setting that is wrong.
func badEnvironment(t *testing.T, binary string) {
	good := map[string]string{"SERVICEBUS_CONNECTION_STRING": busConnection("127.0.0.1:1"), "MILLRACE_QUEUE": queue,
		"MILLRACE_RESULTS": "https://acct.blob.core.windows.net/results"}
	for _, tc := range []struct {
		name   string
		base   map[string]string
		change map[string]string
		want   []string // how each line begins
	}{
		{"nothing", nil, nil, []string{
			"MILLRACE_QUEUE: is not set", "MILLRACE_RESULTS: is not set", "SERVICEBUS_CONNECTION_STRING or SERVICEBUS_FULLY_QUALIFIED_NAMESPACE: "}},
		{"every kind", good, map[string]string{
			"SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": "contoso.servicebus.windows.net", "MILLRACE_SLOTS": "many", "MILLRACE_RECEIVERS": "0",
			"MILLRACE_CONNECTIONS": "101", "MILLRACE_MAX_REPLICAS": "1.5", "MILLRACE_DRAIN": "25", "MILLRACE_LOG_LEVEL": "loud"}, []string{
			"MILLRACE_SLOTS: ", "MILLRACE_MAX_REPLICAS: ", "MILLRACE_DRAIN: ", "MILLRACE_LOG_LEVEL: ",
			"SERVICEBUS_CONNECTION_STRING and SERVICEBUS_FULLY_QUALIFIED_NAMESPACE: ", "MILLRACE_RECEIVERS: ", "MILLRACE_CONNECTIONS: "}},
		{"no catalog", good, map[string]string{"MILLRACE_CATALOG": "none.yaml"}, []string{"load catalog"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := map[string]string{}
			for _, m := range []map[string]string{tc.base, tc.change} {
				for name, value := range m {
					env[name] = value
				}
			}
			refused(t, binary, env, tc.want)
		})
	}
}

// refused wants exit code 2 and as many lines on standard error as want, each with its beginning.
func refused(t *testing.T, binary string, env map[string]string, want []string) {
	t.Helper()
	w := launch(t, binary, env)
	if code := w.awaitExit(patience); code != 2 {
		t.Errorf("exit code = %d, want 2", code)
	}
	w.checkSecrets()
	if w.out.Len() > 0 {
		t.Errorf("standard output = %q, want nothing", w.out.String())
	}
	got := strings.Split(strings.TrimSuffix(w.logs.text(), "\n"), "\n")
	begins := make([]string, len(got))
	for i, line := range got {
		begins[i] = line
		if i < len(want) && strings.HasPrefix(line, want[i]) {
			begins[i] = want[i]
		}
	}
	if diff := cmp.Diff(want, begins); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
}

// badCatalog: every problem with the place where it is.
func badCatalog(t *testing.T, binary string) {
	path := filepath.Join(t.TempDir(), "catalog.yaml")
	const yaml = `version: "1"
tenants:
  acme: {team: search, containers: ["http://acct.blob.core.windows.net/in"]}
  Acme: {team: search, containers: ["https://acct.blob.core.windows.net/in"]}
deployments:
  main: {endpoint: "https://acme.openai.azure.com", deployment: gpt, tpm: none, api_key: ` + canaryKey + `}
aliases:
  summarize: {kind: chat, deployments: [spare], prompt_file: prompt.md, prompt_version: "1"}
`
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, at := range []string{"3:37: tenants.acme.containers", "4:3: tenants.Acme", "6:75: deployments.main.tpm",
		"6:81: deployments.main.api_key", "8:3: aliases.summarize", "8:41: aliases.summarize.deployments[0]", "8:62: aliases.summarize.prompt_file"} {
		want = append(want, fmt.Sprintf("%s:%s", path, at))
	}
	refused(t, binary, map[string]string{"SERVICEBUS_CONNECTION_STRING": busConnection("127.0.0.1:1"), "MILLRACE_QUEUE": queue,
		"MILLRACE_CATALOG": path, "MILLRACE_RESULTS": "https://acct.blob.core.windows.net/results"}, want)
}

// gate is a TCP address in front of a broker.
type gate struct {
	listener net.Listener
	accepted chan struct{} // one for every connection
	serving  sync.WaitGroup
}

// openGate hands each connection, with its number from 1, to serve, which owns it.
func openGate(t *testing.T, serve func(n int, c net.Conn)) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, accepted: make(chan struct{}, 1000)}
	g.serving.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.serving.Go(func() { serve(n, c) })
			g.accepted <- struct{}{}
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.serving.Wait()
	})
	return g
}

func (g *gate) awaitAccepted(t *testing.T, n int) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for i := range n {
		select {
		case <-g.accepted:
		case <-timer.C:
			t.Fatalf("connections = %d in %v, want %d", i, patience, n)
		}
	}
}

// unreachableBroker: a worker without its broker is no failure. It tries until it is asked to go.
func unreachableBroker(t *testing.T, binary string) {
	for _, tc := range []struct {
		name  string
		serve func(n int, c net.Conn)
		tries int
	}{
		{"that hangs up", func(_ int, c net.Conn) { c.Close() }, 6},
		{"that says nothing", func(_ int, c net.Conn) {
			_, _ = c.Read(make([]byte, 1<<10)) // the client's greeting
			_, _ = c.Read(make([]byte, 1<<10)) // until it leaves
			c.Close()
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := openPlant(t, binary, time.Minute, &blobtest.Server{}, &modeltest.Server{})
			g := openGate(t, tc.serve)
			w := p.start(canaryKey, map[string]string{"SERVICEBUS_CONNECTION_STRING": busConnection(g.listener.Addr().String()), "MILLRACE_DRAIN": "2s"})
			g.awaitAccepted(t, tc.tries)
			asked := time.Now()
			w.signal(syscall.SIGTERM)
			code := w.awaitExit(patience)
			took := time.Since(asked)
			if code != 0 || took > 30*time.Second {
				t.Errorf("exit code after SIGTERM = %d in %v, want 0 within 30 s; it said:\n%s", code, took, w.logs.text())
			}
			w.checkLogs()
			t.Logf("%d connections tried, gone %v after SIGTERM", tc.tries, took.Round(time.Millisecond))
		})
	}
}

// lateBroker: the broker comes up after the worker, and needs nobody to tell it.
func lateBroker(t *testing.T, binary string) {
	const refusals = 6
	p := openPlant(t, binary, time.Minute, &blobtest.Server{}, &modeltest.Server{})
	g := openGate(t, func(n int, c net.Conn) {
		if n <= refusals {
			c.Close()
			return
		}
		p.bus.ServeConn(c)
	})
	claims := p.submit(5, 0)
	w := p.start(canaryKey, map[string]string{"SERVICEBUS_CONNECTION_STRING": busConnection(g.listener.Addr().String())})
	p.awaitEmpty()
	t.Logf("worked %d messages %v after the start, %d connections refused", len(claims), time.Since(w.started).Round(time.Millisecond), refusals)
	w.drain()
	w.checkLogs()
	p.check(claims)
}
