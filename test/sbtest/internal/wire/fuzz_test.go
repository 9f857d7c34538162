package wire_test

import (
	"bytes"
	"testing"

	"millrace/test/sbtest/internal/wire"
)

// FuzzDecode holds that what decodes re-encodes to something that decodes to
// the same value: the second encoding is the first.
func FuzzDecode(f *testing.F) {
	for _, v := range []any{
		nil, "text", wire.List{uint32(1), wire.Symbol("s")}, wire.Map{{Key: "k", Value: int64(-1)}},
		wire.Array{Code: wire.ArrayUUID, Elements: []any{wire.UUID{1}}}, wire.Described{Descriptor: uint64(0x75), Value: []byte("b")},
	} {
		f.Add(wire.Append(nil, v))
	}
	f.Add([]byte{0xe0, 4, 2, 0x41, 0x42, 0x42})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := wire.Decode(b)
		if err != nil {
			return
		}
		if after, err := wire.Skip(b); err != nil || len(after) != len(rest) {
			t.Fatalf("Skip leaves %d bytes, %v; Decode %d", len(after), err, len(rest))
		}
		once := wire.Append(nil, v)
		again, rest, err := wire.Decode(once)
		if err != nil || len(rest) != 0 {
			t.Fatalf("Decode(Append(%#v)): %d bytes left, %v", v, len(rest), err)
		}
		if twice := wire.Append(nil, again); !bytes.Equal(once, twice) {
			t.Fatalf("%#v encodes as % x, decoded again as % x", v, once, twice)
		}
	})
}

// FuzzParseMessage holds that a message whose id and properties were changed is
// still a message with the same body.
func FuzzParseMessage(f *testing.F) {
	f.Add(wire.AppendMessage(nil, &wire.Built{
		TTL: 5, MessageID: "id", AppProperties: wire.Map{{Key: "k", Value: true}}, Data: []byte("body"),
	}))
	f.Add(wire.AppendMessage(nil, &wire.Built{Value: wire.Map{{Key: "lock-tokens", Value: nil}}, HasValue: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.ParseMessage(b)
		if err != nil {
			return
		}
		before, _ := m.Body()
		m.SetID("id")
		m.MergeAppProperties(wire.Map{{Key: "k", Value: "v"}})
		out := append(m.AppendHead(nil, 1, m.TTL, nil, nil), m.Bare()...)
		again, err := wire.ParseMessage(out)
		if err != nil {
			t.Fatalf("a changed message does not parse: %v", err)
		}
		after, _ := again.Body()
		if again.ID() != "id" || again.AppProperties().Text("k") != "v" || !bytes.Equal(bytes.Join(before, nil), bytes.Join(after, nil)) {
			t.Fatalf("a changed message lost something: %+v", again)
		}
	})
}

// FuzzPerformative holds that no frame body panics a decoder, and that what
// decodes can be written.
func FuzzPerformative(f *testing.F) {
	for _, p := range []wire.Performative{
		&wire.Open{ContainerID: "c"}, &wire.Attach{Name: "n"}, &wire.Flow{}, &wire.Transfer{Tag: []byte("t")},
		&wire.Disposition{State: wire.State{Code: wire.CodeAccepted}}, &wire.Detach{Error: &wire.Error{Condition: "c"}},
	} {
		f.Add(p.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, fields, _, err := wire.ParseDescribed(b)
		if err != nil {
			return
		}
		for _, p := range []interface {
			wire.Performative
			Unmarshal(wire.Fields) error
		}{
			&wire.Open{}, &wire.Begin{}, &wire.Attach{}, &wire.Flow{}, &wire.Transfer{}, &wire.Disposition{},
			&wire.Detach{}, &wire.End{}, &wire.Close{}, &wire.Init{},
		} {
			if p.Unmarshal(fields) != nil {
				continue
			}
			if _, _, rest, err := wire.ParseDescribed(p.Append(nil)); err != nil || len(rest) != 0 {
				t.Fatalf("%T does not read back: %d bytes left, %v", p, len(rest), err)
			}
		}
	})
}
