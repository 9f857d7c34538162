package sbtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of the methods of [Server].
var (
	ErrClosed   = errors.New("server closed")
	ErrNoQueue  = errors.New("no such queue")
	ErrExists   = errors.New("queue exists")
	ErrTooLarge = errors.New("message too large")
)

// Server is the broker. The zero value works; its fields are read when it is
// first used and must not change after. Close must be called, also in a bubble.
type Server struct {
	// LockDuration is how long a received message stays locked, for queues that
	// do not say otherwise. Default: 60 s, as the service's.
	LockDuration time.Duration
	// MaxDeliveryCount is how many deliveries may fail before a message goes to
	// the dead-letter queue, for queues that do not say otherwise. Default: 10.
	MaxDeliveryCount int
	// MaxMessageSize bounds one message and one batch, in bytes. Default:
	// 262144, the standard tier.
	MaxMessageSize int64
	// AutoCreate makes a queue of every name a client or a method mentions.
	// Default: false; a client then gets "not found" for an unknown queue.
	AutoCreate bool
	// LinkIdle detaches a link without traffic for this long with
	// amqp:link:detach-forced; the service does so after 10 minutes.
	// Default: 0, never.
	LinkIdle time.Duration
	// Logger gets what the broker does to connections and links. It never sees
	// message contents or tokens. Default: nil, silent.
	Logger *slog.Logger

	mu        sync.Mutex
	started   bool
	closed    bool
	entities  map[string]*entity // by lower-case name
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
	addr      net.Addr
	nextConn  int

	wg     sync.WaitGroup
	done   chan struct{}
	clock  clock
	faults faults
	totals totals
}

// totals are counters that connections raise.
type totals struct {
	conns, sessions, links, openLinks, frames atomic.Int64
}

// start makes the zero value work. The caller holds s.mu.
func (s *Server) start() error {
	if s.closed {
		return ErrClosed
	}
	if s.started {
		return nil
	}
	s.started = true
	if s.LockDuration <= 0 {
		s.LockDuration = time.Minute
	}
	if s.MaxDeliveryCount <= 0 {
		s.MaxDeliveryCount = 10
	}
	if s.MaxMessageSize <= 0 {
		s.MaxMessageSize = 256 << 10
	}
	s.entities = make(map[string]*entity)
	s.conns = make(map[*conn]struct{})
	s.listeners = make(map[net.Listener]struct{})
	s.done = make(chan struct{})
	s.clock.start()
	s.wg.Go(func() { s.clock.run(s.done, s.tick) })
	return nil
}

// tick lets every queue do what time alone brings.
func (s *Server) tick() {
	s.mu.Lock()
	all := make([]*entity, 0, len(s.entities))
	for _, e := range s.entities {
		all = append(all, e)
	}
	s.mu.Unlock()
	for _, e := range all {
		e.update(func(time.Time) {})
	}
}

// Dial connects to the broker through an in-memory pipe; its signature suits
// azservicebus.ClientOptions.NewWebSocketConn. The broker's side ends when the
// returned side is closed, or with the server.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, broker := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return nil, err
	}
	s.wg.Go(func() { s.ServeConn(broker) })
	return client, nil
}

// ServeConn serves one connection and returns when it has ended; c is closed
// then. Tests use it to bring their own pipes, for instance slow ones.
func (s *Server) ServeConn(c net.Conn) {
	s.mu.Lock()
	if err := s.start(); err != nil {
		s.mu.Unlock()
		c.Close()
		return
	}
	s.nextConn++
	k := newConn(s, c, s.nextConn)
	s.conns[k] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	s.totals.conns.Add(1)
	defer func() {
		s.mu.Lock()
		delete(s.conns, k)
		s.mu.Unlock()
		s.wg.Done()
	}()
	k.br = bufio.NewReaderSize(c, 64<<10)
	k.serve()
}

// Serve accepts connections until l fails or the server is closed, which closes
// l and makes Serve return [ErrClosed]. The connections outlive Serve and are
// joined by Close.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if err := s.start(); err != nil {
		s.mu.Unlock()
		l.Close()
		return err
	}
	s.listeners[l] = struct{}{}
	s.addr = l.Addr()
	s.mu.Unlock()
	for {
		c, err := l.Accept()
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			if err == nil {
				c.Close()
			}
			return ErrClosed
		}
		if err != nil {
			delete(s.listeners, l)
			s.mu.Unlock()
			return fmt.Errorf("accept connection: %w", err)
		}
		s.wg.Go(func() { s.ServeConn(c) })
		s.mu.Unlock()
	}
}

// Listen serves on a TCP address such as "127.0.0.1:0" in the background until
// Close and returns the address it got.
func (s *Server) Listen(addr string) (net.Addr, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		l.Close()
		return nil, err
	}
	s.addr = l.Addr()
	s.wg.Go(func() {
		if err := s.Serve(l); !errors.Is(err, ErrClosed) {
			s.log("listener failed", "error", err)
		}
	})
	return l.Addr(), nil
}

// ConnectionString is what a client needs: with the address of the listener, or
// with a made-up host for clients that use Dial. The key is not a secret: any
// token is accepted.
func (s *Server) ConnectionString() string {
	host := "sbtest.local"
	s.mu.Lock()
	if s.addr != nil {
		host = s.addr.String()
	}
	s.mu.Unlock()
	return "Endpoint=sb://" + host + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
}

// ConnInfo describes one open connection.
type ConnInfo struct {
	ID        int    // unique within the server
	Container string // the client's container id, "" until it has opened
	Remote    string // network address
	Links     int
}

// Conns lists the open connections in the order they came.
func (s *Server) Conns() []ConnInfo {
	s.mu.Lock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	infos := make([]ConnInfo, 0, len(all))
	for _, c := range all {
		infos = append(infos, c.info())
	}
	slices.SortFunc(infos, func(a, b ConnInfo) int { return a.ID - b.ID })
	return infos
}

// Cut drops every connection without a word, as a failing network does, and
// returns how many there were. Locks of their messages stay until they expire.
func (s *Server) Cut() int {
	return s.cut(func(*conn) bool { return true })
}

// CutConn drops the connection with this [ConnInfo] ID and reports whether
// there was one.
func (s *Server) CutConn(id int) bool {
	return s.cut(func(c *conn) bool { return c.id == id }) > 0
}

func (s *Server) cut(match func(*conn) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.conns {
		if match(c) {
			c.nc.Close()
			n++
		}
	}
	return n
}

// hangAfter is how long Close waits before it names what keeps it.
const hangAfter = 5 * time.Second

// Close cuts all connections, stops listening and waits for every goroutine of
// the server. It may be called again. When something does not end within 5 s
// it logs and returns what hangs.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.started {
		s.closed = true
		s.mu.Unlock()
		return nil
	}
	if !s.closed {
		s.closed = true
		close(s.done)
		for l := range s.listeners {
			l.Close()
		}
	}
	for c := range s.conns {
		c.nc.Close()
	}
	s.mu.Unlock()

	joined := make(chan struct{})
	go func() { s.wg.Wait(); close(joined) }()
	timeout := time.NewTimer(hangAfter)
	defer timeout.Stop()
	select {
	case <-joined:
		return nil
	case <-timeout.C:
	}
	var who []string
	for _, c := range s.Conns() {
		who = append(who, fmt.Sprintf("connection %d of %s with %d links", c.ID, c.Remote, c.Links))
	}
	err := fmt.Errorf("close server: still running after %v: %s", hangAfter, strings.Join(who, ", "))
	s.log("close hangs", "error", err)
	return err
}

func (s *Server) log(msg string, args ...any) {
	if s.Logger != nil {
		s.Logger.Info(msg, args...)
	}
}
