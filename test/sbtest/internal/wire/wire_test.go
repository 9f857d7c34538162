package wire_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/test/sbtest/internal/wire"
)

func TestDecodeReadsWhatAppendWrites(t *testing.T) {
	uuid := wire.UUID{1, 2, 3, 15: 9}
	for _, v := range []any{
		nil, true, false,
		uint8(7), uint16(700), uint32(0), uint32(5), uint32(math.MaxUint32), uint64(0), uint64(255), uint64(math.MaxUint64),
		int8(-7), int16(-700), int32(-128), int32(-129), int32(math.MaxInt32), int64(127), int64(128), int64(math.MinInt64),
		float32(1.5), float64(-2.25), wire.Char('ß'), wire.Timestamp(-1),
		wire.Decimal32{1}, wire.Decimal64{2}, wire.Decimal128{3}, uuid,
		[]byte{}, []byte("x"), bytes.Repeat([]byte{9}, 256), "", "ß", strings.Repeat("s", 300), wire.Symbol("sym"),
		wire.List{}, wire.List{nil, uint32(1), wire.List{"in"}},
		wire.Map{}, wire.Map{{Key: "k", Value: wire.Map{{Key: wire.Symbol("x"), Value: nil}}}, {Key: uint32(1), Value: true}},
		wire.Array{Code: wire.ArrayUUID, Elements: []any{uuid, uuid}},
		wire.Array{Code: wire.ArrayLong, Elements: []any{}},
		wire.Array{Code: wire.ArrayString, Descriptor: uint64(9), Elements: []any{"a", "b"}},
		wire.Described{Descriptor: uint64(0x77), Value: "v"},
		wire.Described{Descriptor: wire.Symbol("d"), Value: wire.Described{Descriptor: uint64(1), Value: wire.List{}}},
	} {
		b := wire.Append([]byte("x"), v)[1:]
		got, rest, err := wire.Decode(append(b, 0xee))
		if err != nil || len(rest) != 1 {
			t.Errorf("Decode(Append(%#v)) = %d bytes left, %v", v, len(rest), err)
			continue
		}
		if diff := cmp.Diff(v, got); diff != "" {
			t.Errorf("Decode(Append(v)) (-want +got):\n%s", diff)
		}
		if rest, err := wire.Skip(append(b, 0xee)); err != nil || len(rest) != 1 {
			t.Errorf("Skip(Append(%#v)) = %d bytes left, %v", v, len(rest), err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	nested := bytes.Repeat([]byte{0xc0, 0, 1}, 40)
	for i := range 40 { // each list holds the next
		nested[3*i+1] = byte(len(nested) - 3*i - 2)
	}
	for _, tc := range []struct {
		name string
		in   []byte
		want error
	}{
		{"nothing", nil, wire.ErrShort},
		{"unknown constructor", []byte{0x99}, wire.ErrInvalid},
		{"cut string", []byte{0xa1, 5, 'a'}, wire.ErrShort},
		{"huge binary", []byte{0xb0, 0xff, 0xff, 0xff, 0xff, 1}, wire.ErrShort},
		{"no UTF-8", []byte{0xa1, 1, 0xff}, wire.ErrInvalid},
		{"boolean 2", []byte{0x56, 2}, wire.ErrInvalid},
		{"list count beyond its bytes", []byte{0xc0, 2, 200, 0x40}, wire.ErrShort},
		{"list longer than its elements", []byte{0xc0, 3, 1, 0x40, 0x40}, wire.ErrInvalid},
		{"odd map", []byte{0xc1, 2, 1, 0x40}, wire.ErrInvalid},
		{"a million nulls", []byte{0xf0, 0, 0, 0, 5, 0, 0x0f, 0x42, 0x40, 0x40}, wire.ErrLimit},
		{"array without constructor", []byte{0xe0, 1, 0}, wire.ErrShort},
		{"deep", nested, wire.ErrLimit},
		{"deep descriptors", bytes.Repeat([]byte{0}, 100), wire.ErrLimit},
	} {
		if v, _, err := wire.Decode(tc.in); !errors.Is(err, tc.want) {
			t.Errorf("%s: Decode = %v, %v, want %v", tc.name, v, err, tc.want)
		}
	}
}

// parse is the performative in b, by its descriptor.
func parse(t *testing.T, b []byte) any {
	t.Helper()
	code, f, rest, err := wire.ParseDescribed(b)
	if err != nil || len(rest) != 0 {
		t.Fatalf("ParseDescribed: %d bytes left, %v", len(rest), err)
	}
	var p interface{ Unmarshal(wire.Fields) error }
	switch wire.Code(code) {
	case wire.CodeOpen:
		p = &wire.Open{}
	case wire.CodeBegin:
		p = &wire.Begin{}
	case wire.CodeAttach:
		p = &wire.Attach{}
	case wire.CodeFlow:
		p = &wire.Flow{}
	case wire.CodeTransfer:
		p = &wire.Transfer{}
	case wire.CodeDisposition:
		p = &wire.Disposition{}
	case wire.CodeDetach:
		p = &wire.Detach{}
	case wire.CodeEnd:
		p = &wire.End{}
	case wire.CodeClose:
		p = &wire.Close{}
	case wire.CodeInit:
		p = &wire.Init{}
	default:
		t.Fatalf("descriptor 0x%02x", code)
	}
	if err := p.Unmarshal(f); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPerformativesRoundTrip(t *testing.T) {
	e := &wire.Error{Condition: "amqp:not-found", Description: strings.Repeat("long ", 60), Info: wire.Map{{Key: wire.Symbol("k"), Value: "v"}}}
	for _, p := range []wire.Performative{
		&wire.Open{ContainerID: "c", Hostname: "h:1", MaxFrameSize: 65536, ChannelMax: 4999, IdleTimeOut: 30000, Properties: wire.Map{{Key: wire.Symbol("p"), Value: "v"}}},
		&wire.Open{ContainerID: "c", ChannelMax: 65535},
		&wire.Begin{RemoteChannel: 3, HasRemote: true, NextOutgoingID: 1, IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: 255},
		&wire.Begin{IncomingWindow: 1, HandleMax: 1},
		&wire.Attach{Name: "n", Handle: 300, Receiver: true, SendMode: 1, ReceiveMode: 1, Properties: wire.Map{{Key: wire.Symbol("p"), Value: uint32(1)}}},
		&wire.Attach{Name: "n", SendMode: 2, InitialDeliveryCount: 4, MaxMessageSize: 262144},
		&wire.Flow{NextIncomingID: 1, HasNextIncomingID: true, IncomingWindow: 2, NextOutgoingID: 3, OutgoingWindow: 4},
		&wire.Flow{Handle: 1, HasHandle: true, DeliveryCount: 2, HasDeliveryCount: true, LinkCredit: 3, HasLinkCredit: true, Drain: true, Echo: true},
		&wire.Transfer{Handle: 1, DeliveryID: 2, HasDeliveryID: true, Tag: []byte("tag"), Format: wire.BatchFormat, HasFormat: true, More: true},
		&wire.Transfer{Settled: true, Aborted: true},
		&wire.Disposition{Receiver: true, First: 1, Last: 9, Settled: true, State: wire.State{Code: wire.CodeAccepted}},
		&wire.Disposition{State: wire.State{Code: wire.CodeRejected, Error: e}},
		&wire.Disposition{State: wire.State{Code: wire.CodeModified, UndeliverableAt: true, Annotations: wire.Map{{Key: wire.Symbol("a"), Value: int32(1)}}}},
		&wire.Disposition{State: wire.State{Code: wire.CodeReleased}},
		&wire.Detach{Handle: 1, Closed: true, Error: e},
		&wire.Detach{},
		&wire.End{}, &wire.Close{Error: e},
		&wire.Init{Mechanism: "ANONYMOUS"},
	} {
		if diff := cmp.Diff(any(p), parse(t, p.Append(nil))); diff != "" {
			t.Errorf("%T (-want +got):\n%s", p, diff)
		}
	}
}

func TestTerminusIsRepeatedExactly(t *testing.T) {
	source := wire.Described{Descriptor: uint64(wire.CodeSource), Value: wire.List{
		"queue", uint32(2), wire.Symbol("never"), nil, nil, nil, nil,
		wire.Map{{Key: wire.Symbol("f"), Value: wire.Described{Descriptor: uint64(0x137000000C), Value: "s"}}},
	}}
	raw := wire.Append(nil, source)
	attach := wire.Append(nil, wire.Described{Descriptor: uint64(wire.CodeAttach), Value: wire.List{
		"n", uint32(0), true, nil, uint8(1), source, nil,
	}})
	a := parse(t, attach).(*wire.Attach)
	if a.Source == nil || a.Source.Address != "queue" || a.Source.Filter.Get("f") == nil || a.Target != nil || a.SendMode != wire.SendMixed {
		t.Fatalf("attach = %+v", a)
	}
	if !bytes.Contains(a.Append(nil), raw) {
		t.Error("the source is not repeated as it was sent")
	}
}

func TestReadFrame(t *testing.T) {
	b := wire.AppendFrame(nil, wire.FrameAMQP, 7, &wire.End{})
	b = wire.AppendEmptyFrame(b)
	b = append(b, 0, 0, 0, 12, 3, 0, 0, 0, 1, 2, 3, 4) // extended header of 4 bytes
	r := bufio.NewReader(bytes.NewReader(b))
	fr, buf, err := wire.ReadFrame(r, nil, 512)
	if err != nil || fr.Channel != 7 {
		t.Fatalf("ReadFrame = %+v, %v", fr, err)
	}
	parse(t, fr.Body)
	for range 2 {
		if fr, buf, err = wire.ReadFrame(r, buf, 512); err != nil || len(fr.Body) != 0 {
			t.Fatalf("ReadFrame = %+v, %v, want an empty frame", fr, err)
		}
	}
	if _, _, err = wire.ReadFrame(r, buf, 512); err != io.EOF {
		t.Errorf("ReadFrame at the end = %v, want EOF", err)
	}
	for _, h := range [][]byte{
		{0, 0, 0, 7, 2, 0, 0, 0}, {0, 0, 0, 8, 1, 0, 0, 0}, {0, 0, 0, 8, 255, 0, 0, 0}, {255, 0, 0, 8, 2, 0, 0, 0},
	} {
		if _, _, err := wire.ReadFrame(bufio.NewReader(bytes.NewReader(h)), nil, 512); err == nil {
			t.Errorf("ReadFrame(%v) = nil, want an error", h)
		}
	}
}
