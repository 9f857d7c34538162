// Package pipe is a network inside one process: buffered connections with one-way latency, and listeners for them.
//
// Real clients and servers speak over it unchanged. Blocking on it is blocking on channels and timers of package time,
// so a whole fleet runs in a testing/synctest bubble in virtual time; a loopback socket would stop that clock.
package pipe

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Latency gives the one-way delay of the next write, or 0. It may be called from many goroutines. Bytes never overtake
// bytes of the same direction. A nil Latency is no delay.
type Latency func() time.Duration

// New returns the two ends of a connection.
func New(latency Latency) (net.Conn, net.Conn) {
	ab, ba := newLane(latency), newLane(latency)
	return &conn{in: ba, out: ab}, &conn{in: ab, out: ba}
}

// conn is one end.
type conn struct {
	in, out   *lane
	rd, wd    deadline
	closeOnce sync.Once
}

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p, &c.rd) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p, &c.wd) }

// Close ends both directions: what was written before is still delivered, as after a FIN.
func (c *conn) Close() error {
	c.closeOnce.Do(func() {
		c.out.end(io.EOF, io.ErrClosedPipe)
		c.in.end(io.ErrClosedPipe, io.ErrClosedPipe)
		c.in.drop()
	})
	return nil
}

func (c *conn) LocalAddr() net.Addr                { return addr("") }
func (c *conn) RemoteAddr() net.Addr               { return addr("") }
func (c *conn) SetDeadline(t time.Time) error      { c.rd.set(t); c.wd.set(t); return nil }
func (c *conn) SetReadDeadline(t time.Time) error  { c.rd.set(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.wd.set(t); return nil }

type addr string

func (addr) Network() string { return "pipe" }

func (a addr) String() string {
	if a == "" {
		return "pipe"
	}
	return string(a)
}

// lane is one direction: bytes with the time at which they arrive.
type lane struct {
	latency Latency

	mu       sync.Mutex
	parcels  []parcel
	last     time.Time // arrival of the last parcel
	readErr  error     // what the reader gets when nothing is left
	writeErr error     // what the writer gets from now on
	changed  chan struct{}
}

type parcel struct {
	at   time.Time
	data []byte
}

func newLane(l Latency) *lane { return &lane{latency: l, changed: make(chan struct{})} }

// signal wakes whoever waits; the caller holds mu.
func (l *lane) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lane) write(p []byte, d *deadline) (int, error) {
	if d.passed() {
		return 0, os.ErrDeadlineExceeded
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writeErr != nil {
		return 0, l.writeErr
	}
	at := time.Now()
	if l.latency != nil {
		at = at.Add(l.latency())
	}
	if at.Before(l.last) {
		at = l.last
	}
	l.last = at
	l.parcels = append(l.parcels, parcel{at, append([]byte(nil), p...)})
	l.signal()
	return len(p), nil
}

func (l *lane) read(p []byte, d *deadline) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		expired := d.wait()
		if d.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		l.mu.Lock()
		var arrives <-chan time.Time
		var timer *time.Timer
		if len(l.parcels) > 0 {
			head := &l.parcels[0]
			wait := time.Until(head.at)
			if wait <= 0 {
				n := copy(p, head.data)
				if head.data = head.data[n:]; len(head.data) == 0 {
					l.parcels = l.parcels[1:]
				}
				l.mu.Unlock()
				return n, nil
			}
			timer = time.NewTimer(wait)
			arrives = timer.C
		} else if l.readErr != nil {
			err := l.readErr
			l.mu.Unlock()
			return 0, err
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-arrives:
		case <-changed:
		case <-expired:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

func (l *lane) end(readErr, writeErr error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readErr == nil || errors.Is(l.readErr, io.EOF) {
		l.readErr = readErr
	}
	l.writeErr = writeErr
	l.signal()
}

// drop forgets what has not been read.
func (l *lane) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parcels = nil
	l.signal()
}

// deadline is a settable point in time that a waiter can select on.
type deadline struct {
	mu      sync.Mutex
	at      time.Time
	timer   *time.Timer
	expired chan struct{}
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	d.wake() // waiters look at the new deadline
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.wake()
		})
	}
}

// wake wakes whoever waits; the caller holds mu.
func (d *deadline) wake() {
	if d.expired != nil {
		close(d.expired)
		d.expired = nil
	}
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.expired == nil {
		d.expired = make(chan struct{})
	}
	return d.expired
}

func (d *deadline) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.at.IsZero() && !time.Now().Before(d.at)
}
