package sbtest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
)

func testRoundTrip(t *testing.T, client *azservicebus.Client, srv *sbtest.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	sender := newSender(t, client, "Work")
	id := "m-1"
	err := sender.SendMessage(ctx, &azservicebus.Message{
		MessageID: &id, Body: []byte("hello"), ApplicationProperties: map[string]any{"k": "v"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		if err := batch.AddMessage(&azservicebus.Message{Body: fmt.Append(nil, i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
		t.Fatal(err)
	}
	r := newReceiver(t, client, "work", nil)
	for i, m := range receive(t, ctx, r, 10) {
		if i == 0 {
			if m.MessageID != id || string(m.Body) != "hello" || m.ApplicationProperties["k"] != "v" || m.DeliveryCount != 1 {
				t.Errorf("first message = %q %q %v count %d", m.MessageID, m.Body, m.ApplicationProperties, m.DeliveryCount)
			}
		} else if want := fmt.Sprint(i - 1); string(m.Body) != want {
			t.Errorf("body of message %d = %q, want %q", i, m.Body, want)
		}
		if err := r.RenewMessageLock(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.CompleteMessage(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := srv.AwaitEmpty(ctx, "work"); err != nil {
		t.Fatal(err)
	}
	st := srv.Stats("work")
	if st.Enqueued != 10 || st.Deliveries != 10 || st.Completed != 10 || st.Renewals != 10 || st.Receivers != 1 {
		t.Errorf("stats = %+v", st)
	}
	if n := srv.DeliveriesOf("work", id); n != 1 {
		t.Errorf("DeliveriesOf(%q) = %d, want 1", id, n)
	}
}

func TestServerRoundTripOverTCP(t *testing.T) {
	srv := newServer(t, &sbtest.Server{}, "work")
	client := tcpClient(t, srv)
	defer closeAll(t, client, srv)
	testRoundTrip(t, client, srv)
}

func TestServerRoundTripInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, &sbtest.Server{}, "work")
		client := dialClient(t, srv)
		defer closeAll(t, client, srv)
		testRoundTrip(t, client, srv)
	})
}
