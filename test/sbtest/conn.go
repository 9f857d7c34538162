package sbtest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"millrace/test/sbtest/internal/wire"
)

// What the broker announces about itself.
const (
	maxFrameSize = 64 << 10
	channelMax   = 4999
	idleTimeOut  = 4 * time.Minute
)

// outLimit is how many unsent bytes a connection may have before it gets no
// more messages; outMax is where a peer that does not read is given up.
const (
	outLimit = 1 << 20
	outMax   = 64 << 20
)

// conn is one connection. The reading goroutine decodes and acts; the writing
// goroutine sends what has gathered in out, so that neither side can block the
// other on an unbuffered pipe.
type conn struct {
	s  *Server
	id int
	nc net.Conn
	br *bufio.Reader

	mu        sync.Mutex
	out       []byte
	corked    bool // the reading goroutine has more to do and wakes the writer after
	congested bool // a message was held back because of outLimit
	ended     bool // nothing may be written any more
	container string
	maxFrame  int
	sessions  map[uint16]*session

	wake     chan struct{}
	finish   chan struct{} // closed when the reading goroutine is done
	peerIdle atomic.Int64  // nanoseconds; how long the peer bears silence
	lastRead atomic.Int64  // Unix nanoseconds

	flow wire.Flow // decoded by the reading goroutine, one at a time
	xfer wire.Transfer
	disp wire.Disposition
}

func newConn(s *Server, nc net.Conn, id int) *conn {
	return &conn{
		s: s, id: id, nc: nc, maxFrame: wire.MinFrame,
		sessions: make(map[uint16]*session),
		wake:     make(chan struct{}, 1),
		finish:   make(chan struct{}),
	}
}

func (c *conn) info() ConnInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, ss := range c.sessions {
		n += len(ss.links)
	}
	return ConnInfo{ID: c.id, Container: c.container, Remote: c.nc.RemoteAddr().String(), Links: n}
}

// serve runs both goroutines and returns when both are done.
func (c *conn) serve() {
	c.lastRead.Store(time.Now().UnixNano())
	var writer sync.WaitGroup
	writer.Go(c.write)
	err := c.read()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
		c.s.log("connection failed", "conn", c.id, "error", err)
	}
	c.leave()
	close(c.finish)
	writer.Wait()
	c.nc.Close()
}

// leave ends everything the connection holds except the locks of its messages,
// which stay until they expire.
func (c *conn) leave() {
	c.mu.Lock()
	all := make([]*session, 0, len(c.sessions))
	for _, ss := range c.sessions {
		all = append(all, ss)
	}
	clear(c.sessions)
	c.uncork()
	c.mu.Unlock()
	for _, ss := range all {
		ss.end()
	}
}

// push appends to the outgoing bytes. The caller holds c.mu.
func (c *conn) push(add func(b []byte) []byte) {
	if c.ended {
		return
	}
	c.out = add(c.out)
	if len(c.out) > outMax {
		c.ended = true
		c.nc.Close()
		return
	}
	c.signal()
}

// send appends one frame. The caller holds c.mu.
func (c *conn) send(channel uint16, p wire.Performative) {
	c.push(func(b []byte) []byte { return wire.AppendFrame(b, wire.FrameAMQP, channel, p) })
}

// signal wakes the writer unless the reading goroutine will. The caller holds c.mu.
func (c *conn) signal() {
	if c.corked {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// uncork lets the writer send what has gathered. The caller holds c.mu.
func (c *conn) uncork() {
	c.corked = false
	if len(c.out) > 0 {
		c.signal()
	}
}

// write sends until the connection fails or the reading goroutine is done and
// everything is out. It also keeps the connection alive: an empty frame at
// least every half of what the peer bears (part 2.4.5).
func (c *conn) write() {
	var spare []byte
	beat := time.NewTimer(idleTimeOut)
	defer beat.Stop()
	var idle <-chan time.Time
	if every := c.s.LinkIdle / 4; every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		idle = ticker.C
	}
	finishing := false
	for {
		c.mu.Lock()
		b := c.out
		c.out = spare[:0]
		resume := c.congested && len(b) > 0
		if resume {
			c.congested = false
		}
		c.mu.Unlock()
		if len(b) > 0 {
			if _, err := c.nc.Write(b); err != nil {
				c.mu.Lock()
				c.ended = true
				c.mu.Unlock()
				c.nc.Close()
				return
			}
			if resume {
				c.resume()
			}
			spare = b
			if cap(spare) > 2*outLimit {
				spare = nil
			}
			beat.Reset(c.beatEvery())
			continue
		}
		spare = b
		if finishing {
			return
		}
		select {
		case <-c.wake:
		case <-beat.C:
			c.heartbeat()
			beat.Reset(c.beatEvery())
		case <-idle:
			c.dropIdle(time.Now().Add(-c.s.LinkIdle))
		case <-c.finish:
			finishing = true
			c.nc.SetWriteDeadline(time.Now().Add(time.Second))
		}
	}
}

func (c *conn) beatEvery() time.Duration {
	if d := time.Duration(c.peerIdle.Load()) / 2; d > 0 && d < idleTimeOut/2 {
		return d
	}
	return idleTimeOut / 2
}

// heartbeat sends an empty frame, and gives up a peer that was silent for twice
// the idle time-out it was told.
func (c *conn) heartbeat() {
	if time.Now().UnixNano()-c.lastRead.Load() > int64(2*idleTimeOut) {
		c.s.log("peer is silent", "conn", c.id)
		c.nc.Close()
		return
	}
	if f := c.s.faults.strike(OnHeartbeat, "", ""); f == nil {
		c.mu.Lock()
		c.push(wire.AppendEmptyFrame)
		c.mu.Unlock()
	}
}

// resume puts the consumers back in line that were held back by outLimit.
func (c *conn) resume() {
	c.mu.Lock()
	var held []*link
	for _, ss := range c.sessions {
		for _, l := range ss.links {
			if l.kind == consumer && !l.detached {
				held = append(held, l)
			}
		}
	}
	c.mu.Unlock()
	for _, l := range held {
		l.node.offerTo(l)
	}
}

// errDone ends the reading goroutine after an orderly close.
var errDone = errors.New("connection closed")

// read runs the handshake and then handles frames until the end.
func (c *conn) read() error {
	if err := c.handshake(); err != nil {
		return err
	}
	var buf []byte
	var fr wire.Frame
	var err error
	for {
		c.mu.Lock()
		if c.corked = frameBuffered(c.br); !c.corked && len(c.out) > 0 {
			c.signal()
		}
		c.mu.Unlock()
		fr, buf, err = wire.ReadFrame(c.br, buf, maxFrameSize)
		if err != nil {
			if errors.Is(err, wire.ErrLimit) || errors.Is(err, wire.ErrInvalid) {
				c.close("amqp:connection:framing-error", err.Error())
			}
			return err
		}
		c.s.totals.frames.Add(1)
		if !c.corked {
			c.lastRead.Store(time.Now().UnixNano())
		}
		if fr.Type != wire.FrameAMQP || len(fr.Body) == 0 {
			continue
		}
		if err := c.handle(fr); err != nil {
			if errors.Is(err, errDone) {
				return nil
			}
			var e *wire.Error
			if errors.As(err, &e) {
				c.close(e.Condition, e.Description)
			} else {
				c.close("amqp:decode-error", err.Error())
			}
			return err
		}
	}
}

// frameBuffered reports whether the next frame can be read without waiting.
func frameBuffered(br *bufio.Reader) bool {
	if br.Buffered() < 8 {
		return false
	}
	h, err := br.Peek(4)
	if err != nil {
		return false
	}
	return uint32(br.Buffered()) >= uint32(h[0])<<24|uint32(h[1])<<16|uint32(h[2])<<8|uint32(h[3])
}

// close tells the peer that the connection is over.
func (c *conn) close(condition, description string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(0, &wire.Close{Error: &wire.Error{Condition: condition, Description: description}})
}

// handle acts on one frame.
func (c *conn) handle(fr wire.Frame) error {
	code, f, payload, err := wire.ParseDescribed(fr.Body)
	if err != nil {
		return err
	}
	switch wire.Code(code) {
	case wire.CodeClose:
		c.mu.Lock()
		c.send(0, &wire.Close{})
		c.mu.Unlock()
		return errDone
	case wire.CodeBegin:
		return c.begin(fr.Channel, f)
	case wire.CodeOpen:
		return &wire.Error{Condition: "amqp:not-allowed", Description: "second open"}
	}
	c.mu.Lock()
	ss := c.sessions[fr.Channel]
	c.mu.Unlock()
	if ss == nil {
		return &wire.Error{Condition: "amqp:not-allowed", Description: "frame on a channel without session"}
	}
	if ss.ending && wire.Code(code) != wire.CodeEnd {
		return nil
	}
	switch wire.Code(code) {
	case wire.CodeTransfer:
		if err := c.xfer.Unmarshal(f); err != nil {
			return err
		}
		return ss.transfer(&c.xfer, payload)
	case wire.CodeDisposition:
		if err := c.disp.Unmarshal(f); err != nil {
			return err
		}
		return ss.disposition(&c.disp)
	case wire.CodeFlow:
		if err := c.flow.Unmarshal(f); err != nil {
			return err
		}
		return ss.flow(&c.flow)
	case wire.CodeAttach:
		var a wire.Attach
		if err := a.Unmarshal(f); err != nil {
			return err
		}
		return ss.attach(&a)
	case wire.CodeDetach:
		var d wire.Detach
		if err := d.Unmarshal(f); err != nil {
			return err
		}
		return ss.peerDetached(&d)
	case wire.CodeEnd:
		ss.end()
		c.mu.Lock()
		delete(c.sessions, fr.Channel) // the number may be used again at once
		if !ss.ending {
			c.send(fr.Channel, &wire.End{})
		}
		c.mu.Unlock()
		return nil
	}
	return &wire.Error{Condition: "amqp:not-implemented", Description: "unknown performative"}
}
