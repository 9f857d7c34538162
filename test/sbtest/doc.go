// Package sbtest is a Service-Bus-shaped AMQP 1.0 broker for the unmodified Azure SDK: what a worker does with the service, written from
// its documentation and the SDK's measured behaviour and not compared with the service itself.
//
// A [Server] keeps queues in memory and serves them over TCP ([Server.Listen])
// or over in-memory pipes ([Server.Dial]), so that a real client can run inside
// a testing/synctest bubble:
//
//	srv := &sbtest.Server{LockDuration: 30 * time.Second}
//	defer srv.Close()
//	srv.CreateQueue("work", nil)
//	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), &azservicebus.ClientOptions{
//		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
//			return srv.Dial(ctx)
//		},
//	})
//
// It keeps what makes Service Bus hard to use well: locks that expire, delivery
// counts, dead-letter queues, credit that outlives the call that gave it,
// connections that die while messages are held. [Server.Inject] adds faults,
// [Server.Stats] and [Server.Await] make what happens visible without polling.
//
// Who may call whom inside: reading goroutine of a connection → entity (one lock
// per queue and its dead-letter queue) → connection (one lock for its sessions,
// links and outgoing bytes). Locks are taken in that order only.
package sbtest
