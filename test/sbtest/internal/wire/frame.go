package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Protocol headers (part 2.2): what both sides send before the first frame.
const (
	HeaderAMQP = "AMQP\x00\x01\x00\x00"
	HeaderSASL = "AMQP\x03\x01\x00\x00"
)

// Frame types (part 2.3.1).
const (
	FrameAMQP byte = 0
	FrameSASL byte = 1
)

// MinFrame is the smallest max-frame-size either side may announce, and the
// limit until both have opened (part 2.7.1).
const MinFrame = 512

// Frame is one frame without its header. Body is empty for a keep-alive.
type Frame struct {
	Type    byte
	Channel uint16
	Body    []byte
}

// ReadFrame reads one frame of at most max bytes into buf, growing it if it
// must. The frame's body is valid until buf is used again.
func ReadFrame(r *bufio.Reader, buf []byte, max uint32) (Frame, []byte, error) {
	var h [8]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, buf, err
	}
	size := binary.BigEndian.Uint32(h[:])
	doff := uint32(h[4]) * 4
	if doff < 8 || size < doff {
		return Frame{}, buf, fmt.Errorf("frame of size %d with data offset %d: %w", size, doff, ErrInvalid)
	}
	if size > max {
		return Frame{}, buf, fmt.Errorf("frame of %d bytes, at most %d: %w", size, max, ErrLimit)
	}
	n := int(size - 8)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, buf, err
	}
	return Frame{Type: h[5], Channel: binary.BigEndian.Uint16(h[6:]), Body: buf[doff-8:]}, buf, nil
}

// BeginFrame appends a frame header whose size FinishFrame fills in.
func BeginFrame(b []byte, typ byte, channel uint16) (out []byte, start int) {
	return append(b, 0, 0, 0, 0, 2, typ, byte(channel>>8), byte(channel)), len(b)
}

// FinishFrame closes the frame begun at start.
func FinishFrame(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start))
	return b
}

// AppendFrame appends one whole frame around a performative.
func AppendFrame(b []byte, typ byte, channel uint16, p Performative) []byte {
	b, start := BeginFrame(b, typ, channel)
	return FinishFrame(p.Append(b), start)
}

// AppendEmptyFrame appends a keep-alive (part 2.4.5).
func AppendEmptyFrame(b []byte) []byte {
	return append(b, 0, 0, 0, 8, 2, FrameAMQP, 0, 0)
}
