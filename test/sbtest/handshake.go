package sbtest

import (
	"errors"
	"io"
	"time"

	"millrace/test/sbtest/internal/wire"
)

// mechanisms is what Service Bus offers. All are accepted: authority is shown
// later, by tokens put to $cbs.
var mechanisms = []string{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}

// handshake is everything up to and including the broker's open.
func (c *conn) handshake() error {
	var h [8]byte
	if _, err := io.ReadFull(c.br, h[:]); err != nil {
		return err
	}
	if string(h[:]) == wire.HeaderSASL {
		if err := c.sasl(); err != nil {
			return err
		}
		if _, err := io.ReadFull(c.br, h[:]); err != nil {
			return err
		}
	}
	if string(h[:]) != wire.HeaderAMQP {
		c.raw(wire.HeaderSASL) // what would have been right (part 2.2)
		return errors.New("unknown protocol header")
	}
	c.raw(wire.HeaderAMQP)
	return c.open()
}

func (c *conn) raw(s string) {
	c.mu.Lock()
	c.push(func(b []byte) []byte { return append(b, s...) })
	c.mu.Unlock()
}

func (c *conn) sasl() error {
	c.mu.Lock()
	c.push(func(b []byte) []byte {
		b = append(b, wire.HeaderSASL...)
		return wire.AppendFrame(b, wire.FrameSASL, 0, &wire.Mechanisms{Names: mechanisms})
	})
	c.mu.Unlock()
	fr, _, err := wire.ReadFrame(c.br, nil, maxFrameSize)
	if err != nil {
		return err
	}
	code, f, _, err := wire.ParseDescribed(fr.Body)
	if err != nil {
		return err
	}
	var init wire.Init
	if err := init.Unmarshal(f); err != nil {
		return err
	}
	if fr.Type != wire.FrameSASL || wire.Code(code) != wire.CodeInit {
		return errors.New("no sasl-init")
	}
	c.mu.Lock()
	c.push(func(b []byte) []byte { return wire.AppendFrame(b, wire.FrameSASL, 0, &wire.Outcome{}) })
	c.mu.Unlock()
	return nil
}

func (c *conn) open() error {
	var fr wire.Frame
	for len(fr.Body) == 0 {
		var err error
		if fr, _, err = wire.ReadFrame(c.br, nil, maxFrameSize); err != nil {
			return err
		}
	}
	code, f, _, err := wire.ParseDescribed(fr.Body)
	if err != nil {
		return err
	}
	var o wire.Open
	if err := o.Unmarshal(f); err != nil {
		return err
	}
	if wire.Code(code) != wire.CodeOpen {
		return errors.New("no open")
	}
	c.peerIdle.Store(int64(time.Duration(o.IdleTimeOut) * time.Millisecond))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.container = o.ContainerID
	switch {
	case o.MaxFrameSize == 0 || o.MaxFrameSize > maxFrameSize:
		c.maxFrame = maxFrameSize
	case o.MaxFrameSize > wire.MinFrame:
		c.maxFrame = int(o.MaxFrameSize)
	}
	c.send(0, &wire.Open{
		ContainerID: "sbtest", MaxFrameSize: maxFrameSize, ChannelMax: channelMax,
		IdleTimeOut: uint32(idleTimeOut / time.Millisecond),
	})
	if fault := c.s.faults.strike(OnOpen, "", ""); fault != nil {
		if fault.Condition != "" {
			c.send(0, &wire.Close{Error: &wire.Error{Condition: fault.Condition, Description: fault.Description}})
		}
		return errors.New("refused by a fault")
	}
	return nil
}
