package pipe_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"millrace/test/pipe"
)

func TestPipeIsAConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2 = pipe.New(nil)
		return c1, c2, func() { c1.Close(); c2.Close() }, nil
	})
}

func TestPipeDelaysInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := []time.Duration{3 * time.Second, time.Second}
		a, b := pipe.New(func() time.Duration { d := delays[0]; delays = delays[1:]; return d })
		began := time.Now()
		io.WriteString(a, "first ")
		io.WriteString(a, "second")
		a.Close()
		got, err := io.ReadAll(b)
		if string(got) != "first second" || err != nil {
			t.Errorf("ReadAll() = %q, %v, want both writes in order", got, err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("reading took %v, want 3s: the second write must not overtake the first", took)
		}
	})
}

func TestListenerCarriesHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipe.Listener{Latency: func() time.Duration { return rand.N(50 * time.Millisecond) }}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, r.Body)
		})}
		go server.Serve(l)
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
		client := &http.Client{Transport: transport}
		for range 20 {
			resp, err := client.Post("http://pipe/", "text/plain", strings.NewReader("echo"))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != "echo" {
				t.Errorf("body = %q, want echo", body)
			}
		}
		transport.CloseIdleConnections()
		server.Close()
	})
}
