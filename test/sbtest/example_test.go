package sbtest_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
)

// The unmodified SDK receives from a server in the same process.
func ExampleServer() {
	srv := &sbtest.Server{LockDuration: 30 * time.Second}
	defer srv.Close()
	srv.CreateQueue("work", nil)
	srv.Send("work", sbtest.Message{ID: "1", Body: []byte("hello")})

	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return srv.Dial(ctx)
		},
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer client.Close(ctx)
	receiver, err := client.NewReceiverForQueue("work", nil)
	if err != nil {
		panic(err)
	}
	msgs, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		panic(err)
	}
	if err := receiver.CompleteMessage(ctx, msgs[0], nil); err != nil {
		panic(err)
	}
	st := srv.Stats("work")
	fmt.Printf("%s: %d delivery, %d completed\n", msgs[0].Body, st.Deliveries, st.Completed)
	// Output: hello: 1 delivery, 1 completed
}

// A fault strikes once: the settlement is applied but its answer is lost, and
// with it the connection.
func ExampleServer_Inject() {
	srv := &sbtest.Server{}
	defer srv.Close()
	remove := srv.Inject(sbtest.Fault{Point: sbtest.OnSettleReply, Queue: "work", Cut: true})
	defer remove()
}
