package sbtest_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
)

// dialClient is the real client over the server's in-memory pipes.
func dialClient(t testing.TB, srv *sbtest.Server) *azservicebus.Client {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return srv.Dial(ctx)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// tcpClient is the real client over loopback.
func tcpClient(t testing.TB, srv *sbtest.Server) *azservicebus.Client {
	t.Helper()
	if _, err := srv.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newServer(t testing.TB, srv *sbtest.Server, queues ...string) *sbtest.Server {
	t.Helper()
	for _, q := range queues {
		if err := srv.CreateQueue(q, nil); err != nil {
			t.Fatal(err)
		}
	}
	return srv
}

func closeAll(t testing.TB, client *azservicebus.Client, srv *sbtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client.Close(ctx)
	if err := srv.Close(); err != nil {
		t.Errorf("Server.Close() = %v, want nil", err)
	}
}

func newReceiver(t testing.TB, c *azservicebus.Client, queue string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	t.Helper()
	r, err := c.NewReceiverForQueue(queue, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newSender(t testing.TB, c *azservicebus.Client, queue string) *azservicebus.Sender {
	t.Helper()
	s, err := c.NewSender(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// receive returns exactly n messages.
func receive(t testing.TB, ctx context.Context, r *azservicebus.Receiver, n int) []*azservicebus.ReceivedMessage {
	t.Helper()
	var got []*azservicebus.ReceivedMessage
	for len(got) < n {
		msgs, err := r.ReceiveMessages(ctx, n-len(got), nil)
		if err != nil {
			t.Fatalf("ReceiveMessages after %d of %d: %v", len(got), n, err)
		}
		got = append(got, msgs...)
	}
	return got
}
