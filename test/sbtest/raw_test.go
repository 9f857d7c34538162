package sbtest_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"millrace/test/sbtest"
	"millrace/test/sbtest/internal/wire"
)

// rawClient speaks frames, for what the SDK never does. A goroutine reads all
// the time, as a client must; closing the connection ends it.
type rawClient struct {
	t      *testing.T
	c      net.Conn
	frames chan rawFrame
}

type rawFrame struct {
	channel uint16
	code    wire.Code
	fields  wire.Fields
	payload []byte
}

// dialRaw opens a connection with one session on channel 0.
func dialRaw(t *testing.T, srv *sbtest.Server, open *wire.Open) *rawClient {
	t.Helper()
	c, err := srv.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &rawClient{t: t, c: c, frames: make(chan rawFrame, 10_000)}
	go r.read()
	r.write([]byte(wire.HeaderAMQP))
	r.send(open)
	r.expect(wire.CodeOpen)
	r.send(&wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: 255})
	r.expect(wire.CodeBegin)
	return r
}

func (r *rawClient) read() {
	defer close(r.frames)
	br := bufio.NewReader(r.c)
	if _, err := io.ReadFull(br, make([]byte, 8)); err != nil {
		return
	}
	for {
		fr, _, err := wire.ReadFrame(br, nil, 1<<20)
		if err != nil {
			return
		}
		if len(fr.Body) == 0 {
			r.frames <- rawFrame{} // a keep-alive
			continue
		}
		code, fields, payload, err := wire.ParseDescribed(fr.Body)
		if err != nil {
			r.t.Errorf("the broker sent %x: %v", fr.Body, err)
			return
		}
		r.frames <- rawFrame{fr.Channel, wire.Code(code), fields, payload}
	}
}

func (r *rawClient) write(b []byte) {
	r.t.Helper()
	if _, err := r.c.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rawClient) send(p wire.Performative, payload ...byte) {
	r.t.Helper()
	b, start := wire.BeginFrame(nil, wire.FrameAMQP, 0)
	r.write(wire.FinishFrame(append(p.Append(b), payload...), start))
}

// next is the next frame within a minute; ok is false at the end or if none comes.
func (r *rawClient) next() (rawFrame, bool) {
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	select {
	case fr, ok := <-r.frames:
		return fr, ok
	case <-timeout.C:
		return rawFrame{}, false
	}
}

func (r *rawClient) expect(code wire.Code) rawFrame {
	r.t.Helper()
	fr, ok := r.next()
	if !ok || fr.code != code {
		r.t.Fatalf("next frame = 0x%02x (%v), want 0x%02x", fr.code, ok, code)
	}
	return fr
}

func (r *rawClient) expectFlow() wire.Flow {
	r.t.Helper()
	var w wire.Flow
	if err := w.Unmarshal(r.expect(wire.CodeFlow).fields); err != nil {
		r.t.Fatal(err)
	}
	return w
}

func (r *rawClient) expectTransfer() (wire.Transfer, []byte) {
	r.t.Helper()
	fr := r.expect(wire.CodeTransfer)
	var x wire.Transfer
	if err := x.Unmarshal(fr.fields); err != nil {
		r.t.Fatal(err)
	}
	return x, fr.payload
}

// attachReceiver attaches a peek-lock receiver as handle 0.
func (r *rawClient) attachReceiver(queue string) {
	r.t.Helper()
	r.send(&wire.Attach{
		Name: "r", Receiver: true, ReceiveMode: wire.ReceiveSecond, SendMode: wire.SendMixed,
		Source: &wire.Terminus{Code: wire.CodeSource, Address: queue}, Target: &wire.Terminus{Code: wire.CodeTarget},
	})
	r.expect(wire.CodeAttach)
}

// attachSender attaches a sender as handle 1.
func (r *rawClient) attachSender(queue string) {
	r.t.Helper()
	r.send(&wire.Attach{
		Name: "s", Handle: 1, SendMode: wire.SendMixed,
		Source: &wire.Terminus{Code: wire.CodeSource}, Target: &wire.Terminus{Code: wire.CodeTarget, Address: queue},
	})
	r.expect(wire.CodeAttach)
	if w := r.expectFlow(); w.LinkCredit == 0 {
		r.t.Fatal("a sender got no credit")
	}
}

func (r *rawClient) credit(count, credit, window uint32, drain bool) {
	r.t.Helper()
	r.send(&wire.Flow{
		NextIncomingID: count, HasNextIncomingID: true, IncomingWindow: window, OutgoingWindow: 5000, HasHandle: true,
		DeliveryCount: count, HasDeliveryCount: true, LinkCredit: credit, HasLinkCredit: true, Drain: drain,
	})
}

func rawBubble(t *testing.T, open *wire.Open, f func(t *testing.T, srv *sbtest.Server, r *rawClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, &sbtest.Server{}, "q")
		r := dialRaw(t, srv, open)
		f(t, srv, r)
		r.c.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestConnDrain(t *testing.T) {
	rawBubble(t, &wire.Open{ContainerID: "raw"}, func(t *testing.T, srv *sbtest.Server, r *rawClient) {
		r.attachReceiver("Q")
		send(t, srv, "a", "b")
		r.credit(0, 10, 5000, true)
		r.expectTransfer()
		r.expectTransfer()
		if w := r.expectFlow(); !w.Drain || w.LinkCredit != 0 || w.DeliveryCount != 10 {
			t.Errorf("flow after draining = %+v, want credit 0 and count 10", w)
		}
		send(t, srv, "c") // no credit is left for it
		r.send(&wire.Flow{IncomingWindow: 5000, OutgoingWindow: 5000, Echo: true, HasNextIncomingID: true, NextIncomingID: 2})
		if w := r.expectFlow(); w.HasHandle {
			t.Errorf("flow = %+v, want one of the session", w)
		}
		if st := srv.Stats("q"); st.Active != 1 || st.Waiting != 0 {
			t.Errorf("stats = %+v, want the third message to wait", st)
		}
	})
}

func TestConnRespectsWindowAndFrameSize(t *testing.T) {
	open := &wire.Open{ContainerID: "raw", MaxFrameSize: 1024}
	rawBubble(t, open, func(t *testing.T, srv *sbtest.Server, r *rawClient) {
		r.attachReceiver("q")
		body := bytes.Repeat([]byte("0123456789"), 500)
		if err := srv.Send("q", sbtest.Message{ID: "a", Body: body}); err != nil {
			t.Fatal(err)
		}
		send(t, srv, "b")
		r.credit(0, 10, 2, false)
		var got []byte
		frames := uint32(0)
		for more := true; more; {
			x, payload := r.expectTransfer()
			got = append(got, payload...)
			if more = x.More; len(payload) > 1024-8 {
				t.Errorf("a frame holds %d bytes of payload", len(payload))
			}
			if frames++; frames%2 == 0 && more { // the window is used up
				synctest.Wait()
				if len(r.frames) != 0 {
					t.Fatal("the broker sent beyond the window")
				}
				r.send(&wire.Flow{NextIncomingID: frames, HasNextIncomingID: true, IncomingWindow: 2, OutgoingWindow: 5000})
			}
		}
		m, err := wire.ParseMessage(got)
		if err != nil {
			t.Fatal(err)
		}
		if data, _ := m.Body(); len(data) != 1 || !bytes.Equal(data[0], body) {
			t.Error("the body did not arrive whole")
		}
		r.send(&wire.Flow{NextIncomingID: frames, HasNextIncomingID: true, IncomingWindow: 5000, OutgoingWindow: 5000})
		if x, _ := r.expectTransfer(); x.DeliveryID != 1 {
			t.Errorf("second delivery id = %d, want 1", x.DeliveryID)
		}
	})
}

func TestConnSettlesRanges(t *testing.T) {
	rawBubble(t, &wire.Open{ContainerID: "raw"}, func(t *testing.T, srv *sbtest.Server, r *rawClient) {
		r.attachReceiver("q")
		send(t, srv, "a", "b", "c", "d")
		r.credit(0, 4, 5000, false)
		for range 4 {
			r.expectTransfer()
		}
		r.send(&wire.Disposition{Receiver: true, First: 0, Last: 1, State: wire.State{Code: wire.CodeAccepted}})
		r.send(&wire.Disposition{Receiver: true, First: 2, Last: 1 << 30, State: wire.State{Code: wire.CodeModified, DeliveryFailed: true}})
		for id := range uint32(4) {
			var d wire.Disposition
			if err := d.Unmarshal(r.expect(wire.CodeDisposition).fields); err != nil {
				t.Fatal(err)
			}
			if d.First != id || d.Last != id || !d.Settled || d.Receiver {
				t.Errorf("answer %d = %+v", id, d)
			}
		}
		if st := srv.Stats("q"); st.Completed != 2 || st.Abandoned != 2 || st.Active != 2 {
			t.Errorf("stats = %+v", st)
		}
	})
}

func TestConnKeepsMessagesAsSent(t *testing.T) {
	rawBubble(t, &wire.Open{ContainerID: "raw"}, func(t *testing.T, srv *sbtest.Server, r *rawClient) {
		bare := bytes.Join([][]byte{
			wire.Append(nil, wire.Described{Descriptor: uint64(0x73), Value: wire.List{wire.UUID{7}}}),
			wire.Append(nil, wire.Described{Descriptor: uint64(0x74), Value: wire.Map{{Key: "d", Value: wire.Decimal128{1}}}}),
			wire.Append(nil, wire.Described{Descriptor: uint64(0x75), Value: []byte("one")}),
			wire.Append(nil, wire.Described{Descriptor: uint64(0x75), Value: []byte("two")}),
			wire.Append(nil, wire.Described{Descriptor: uint64(0x78), Value: wire.Map{{Key: wire.Symbol("f"), Value: true}}}),
		}, nil)
		head := bytes.Join([][]byte{
			wire.Append(nil, wire.Described{Descriptor: uint64(0x70), Value: wire.List{true, uint8(3)}}),
			wire.Append(nil, wire.Described{Descriptor: uint64(0x71), Value: wire.Map{{Key: wire.Symbol("da"), Value: "x"}}}),
		}, nil)
		r.attachSender("q")
		tag := []byte{0, 0, 0, 0, 0, 0, 0, 1}
		r.send(&wire.Transfer{Handle: 1, HasDeliveryID: true, Tag: tag, HasFormat: true, More: true}, append(head, bare[:9]...)...)
		r.send(&wire.Transfer{Handle: 1}, bare[9:]...)
		var d wire.Disposition
		if err := d.Unmarshal(r.expect(wire.CodeDisposition).fields); err != nil || d.State.Code != wire.CodeAccepted || !d.Receiver {
			t.Fatalf("disposition = %+v, %v", d, err)
		}
		r.attachReceiver("q")
		r.credit(0, 1, 5000, false)
		x, payload := r.expectTransfer()
		if len(x.Tag) != 16 || x.Settled || !x.HasFormat {
			t.Errorf("transfer = %+v", x)
		}
		if !bytes.HasSuffix(payload, bare) {
			t.Error("the bare message changed on the way")
		}
		m, err := wire.ParseMessage(payload)
		if err != nil {
			t.Fatal(err)
		}
		token, _ := m.DeliveryAnnotations.Get("x-opt-lock-token").(wire.UUID)
		if !m.Durable || m.Priority != 3 || m.DeliveryAnnotations.Text("da") != "x" || x.Tag[3] != token[0] || x.Tag[8] != token[8] {
			t.Errorf("message = %+v with tag %x", m, x.Tag)
		}
		if n := len(m.Annotations); n != 3 {
			t.Errorf("message annotations = %v, want exactly three", m.Annotations)
		}
	})
}

func TestConnPunishesWrongFrames(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(r *rawClient)
		want wire.Code
		cond string
	}{
		{"a flow for an unknown handle", func(r *rawClient) { r.credit(0, 1, 1, false) }, wire.CodeEnd, "amqp:session:unattached-handle"},
		{"a transfer too large", func(r *rawClient) {
			r.attachSender("q")
			for range 5 {
				r.send(&wire.Transfer{Handle: 1, HasDeliveryID: true, Tag: []byte{1}, HasFormat: true, More: true}, make([]byte, 60_000)...)
			}
		}, wire.CodeDetach, "amqp:link:message-size-exceeded"},
		{"a message that is none", func(r *rawClient) {
			r.attachSender("q")
			r.send(&wire.Transfer{Handle: 1, HasDeliveryID: true, Tag: []byte{1}, HasFormat: true}, 1, 2, 3)
		}, wire.CodeDisposition, "amqp:decode-error"},
		{"a frame too large", func(r *rawClient) { r.c.Write([]byte{0, 2, 0, 0, 2, 0, 0, 0}) }, wire.CodeClose, "amqp:connection:framing-error"},
		{"garbage", func(r *rawClient) { r.c.Write([]byte{0, 0, 0, 9, 2, 0, 0, 0, 0x40}) }, wire.CodeClose, "amqp:decode-error"},
		{"a transaction", func(r *rawClient) {
			r.send(&wire.Attach{Name: "c", Handle: 9, Source: &wire.Terminus{Code: wire.CodeSource}, Target: &wire.Terminus{Code: wire.CodeCoordinator}})
			r.expect(wire.CodeAttach)
		}, wire.CodeDetach, "amqp:not-implemented"},
		{"a second link to $cbs", func(r *rawClient) {
			for h := range uint32(2) {
				r.send(&wire.Attach{Name: "c", Handle: h, Source: &wire.Terminus{Code: wire.CodeSource}, Target: &wire.Terminus{Code: wire.CodeTarget, Address: "$cbs"}})
				r.expect(wire.CodeAttach)
				if h == 0 {
					r.expectFlow()
				}
			}
		}, wire.CodeDetach, "amqp:not-allowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rawBubble(t, &wire.Open{ContainerID: "raw"}, func(t *testing.T, srv *sbtest.Server, r *rawClient) {
				tc.do(r)
				fr := r.expect(tc.want)
				var e *wire.Error
				switch tc.want {
				case wire.CodeEnd:
					var end wire.End
					end.Unmarshal(fr.fields)
					e = end.Error
				case wire.CodeClose:
					var cl wire.Close
					cl.Unmarshal(fr.fields)
					e = cl.Error
				case wire.CodeDetach:
					var d wire.Detach
					d.Unmarshal(fr.fields)
					if e = d.Error; !d.Closed {
						t.Error("the detach does not close the link")
					}
				case wire.CodeDisposition:
					var d wire.Disposition
					d.Unmarshal(fr.fields)
					e = d.State.Error
				}
				if e == nil || e.Condition != tc.cond {
					t.Errorf("error = %v, want %s", e, tc.cond)
				}
			})
		})
	}
}

func TestConnKeepAlive(t *testing.T) {
	rawBubble(t, &wire.Open{ContainerID: "raw", IdleTimeOut: 20_000}, func(t *testing.T, srv *sbtest.Server, r *rawClient) {
		for range 10 {
			begun := time.Now()
			if fr, ok := r.next(); !ok || fr.code != 0 {
				t.Fatalf("next frame = 0x%02x, %v, want a keep-alive", fr.code, ok)
			}
			if gap := time.Since(begun); gap > 10*time.Second {
				t.Errorf("keep-alive after %v, want at most half of 20s", gap)
			}
		}
		for open := true; open; _, open = r.next() { // and a client that stays silent is left
		}
		synctest.Wait()
		if n := srv.Totals().OpenConnections; n != 0 {
			t.Errorf("open connections = %d, want 0 after silence", n)
		}
	})
}

// FuzzConn holds that no bytes panic the broker or keep it from closing.
func FuzzConn(f *testing.F) {
	var session []byte
	session = wire.AppendFrame(session, wire.FrameAMQP, 0, &wire.Open{ContainerID: "c"})
	session = wire.AppendFrame(session, wire.FrameAMQP, 0, &wire.Begin{IncomingWindow: 10, HandleMax: 10})
	for _, p := range []wire.Performative{
		&wire.Attach{Name: "s", Target: &wire.Terminus{Code: wire.CodeTarget, Address: "q"}},
		&wire.Attach{Name: "r", Handle: 1, Receiver: true, Source: &wire.Terminus{Code: wire.CodeSource, Address: "q"}},
		&wire.Attach{Name: "m", Handle: 2, Target: &wire.Terminus{Code: wire.CodeTarget, Address: "q/$management"}},
		&wire.Flow{HasHandle: true, Handle: 1, LinkCredit: 3, IncomingWindow: 2},
		&wire.Disposition{Receiver: true, First: 0, Last: 3, State: wire.State{Code: wire.CodeReleased}},
		&wire.Detach{Handle: 1, Closed: true}, &wire.End{}, &wire.Close{},
	} {
		session = wire.AppendFrame(session, wire.FrameAMQP, 0, p)
		f.Add(session)
	}
	f.Add([]byte(wire.HeaderSASL))
	f.Fuzz(func(t *testing.T, b []byte) {
		srv := &sbtest.Server{}
		srv.CreateQueue("q", nil)
		srv.Send("q", sbtest.Message{ID: "1"})
		srv.Send("q", sbtest.Message{ID: "2"})
		c, err := srv.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		drained := make(chan struct{})
		go func() { io.Copy(io.Discard, c); close(drained) }()
		if !bytes.HasPrefix(b, []byte("AMQP")) {
			c.Write([]byte(wire.HeaderAMQP))
		}
		c.Write(b)
		c.Close()
		<-drained
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
