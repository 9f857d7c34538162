package worker_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"millrace/test/pipe"
	"millrace/test/sbtest"
)

// dialer connects a client to a broker.
type dialer func(ctx context.Context, b *sbtest.Server) (net.Conn, error)

// slow is a network with latency. A client's links must not open or refresh their tokens side by side over it: the SDK
// serialises that with a mutex, and a bubble's clock stands still while anybody waits for a mutex. So one receiver per
// client, and less than five minutes.
func slow(latency pipe.Latency) dialer {
	return func(_ context.Context, b *sbtest.Server) (net.Conn, error) {
		client, broker := pipe.New(latency)
		go b.ServeConn(broker) // ends with its connection, and Close of the broker waits for it
		return client, nil
	}
}

// between is a latency that is different for every write.
func between(least, most time.Duration) pipe.Latency {
	return func() time.Duration { return least + rand.N(most-least+1) }
}

// darkness is a network that stops carrying anything while it is dark, and closes no connection.
type darkness struct{ atomic.Bool }

func (d *darkness) latency() time.Duration {
	if d.Load() {
		return 1000 * time.Hour
	}
	return time.Millisecond
}

// wrongClock is a network whose broker tells the time wrong by this much.
func wrongClock(by time.Duration) dialer {
	return func(_ context.Context, b *sbtest.Server) (net.Conn, error) {
		client, broker := net.Pipe()
		go b.ServeConn(shifted{broker, by})
		return client, nil
	}
}

// shifted adds to every AMQP timestamp near the present (code 0x83, milliseconds; AMQP 1.0 part 1.6.17) in what is
// written, which the broker does in whole frames.
type shifted struct {
	net.Conn
	by time.Duration
}

func (s shifted) Write(p []byte) (int, error) {
	p = slices.Clone(p)
	for i := 0; i+9 <= len(p); i++ {
		if p[i] != 0x83 {
			continue
		}
		at := time.UnixMilli(int64(binary.BigEndian.Uint64(p[i+1:])))
		if time.Until(at).Abs() < time.Hour {
			binary.BigEndian.PutUint64(p[i+1:], uint64(at.Add(s.by).UnixMilli()))
			i += 8
		}
	}
	return s.Conn.Write(p)
}

// rawMessage encodes a message with an id, one more section and a body (AMQP 1.0 part 3.2).
func rawMessage(id string, section []byte) []byte {
	properties := append([]byte{0x00, 0x53, 0x73, 0xc0, byte(len(id) + 3), 1, 0xa1, byte(len(id))}, id...)
	body := append([]byte{0x00, 0x53, 0x75, 0xa0, byte(len(id))}, id...)
	if section[2] == 0x72 { // annotations come before the properties
		return slices.Concat(section, properties, body)
	}
	return slices.Concat(properties, section, body)
}

// property is a section of application properties with one entry of any type.
func property(key string, value ...byte) []byte {
	return slices.Concat([]byte{0x00, 0x53, 0x74, 0xc1, byte(len(key) + len(value) + 3), 2, 0xa1, byte(len(key))}, []byte(key), value)
}

// annotation is a section of message annotations with one entry of any type.
func annotation(key string, value ...byte) []byte {
	return slices.Concat([]byte{0x00, 0x53, 0x72, 0xc1, byte(len(key) + len(value) + 3), 2, 0xa3, byte(len(key))}, []byte(key), value)
}
