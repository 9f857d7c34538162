package wire_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/test/sbtest/internal/wire"
)

func section(code uint64, v any) []byte {
	return wire.Append(nil, wire.Described{Descriptor: code, Value: v})
}

func TestParseMessageKeepsWhatItDoesNotKnow(t *testing.T) {
	body := append(section(0x75, []byte("one")), section(0x75, []byte("two"))...)
	raw := bytes.Join([][]byte{
		section(0x70, wire.List{true, uint8(9), uint32(1000), nil, uint32(4)}),
		section(0x71, wire.Map{{Key: wire.Symbol("d"), Value: int32(1)}}),
		section(0x72, wire.Map{{Key: wire.Symbol("m"), Value: nil}}),
		section(0x73, wire.List{wire.UUID{1}, []byte("user"), "to", "subject", nil, uint64(5), wire.Symbol("text/plain")}),
		section(0x74, wire.Map{{Key: "k", Value: wire.Decimal64{7}}}),
		body,
		section(0x78, wire.Map{{Key: wire.Symbol("foot"), Value: "er"}}),
	}, nil)
	m, err := wire.ParseMessage(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Durable || m.Priority != 9 || m.TTL != 1000 || m.ID() != "01000000-0000-0000-0000-000000000000" {
		t.Errorf("message = %+v", m)
	}
	if p := m.Properties(); p.To != "to" || p.Subject != "subject" || p.CorrelationID != uint64(5) || p.ContentType != "text/plain" {
		t.Errorf("properties = %+v", p)
	}
	data, _ := m.Body()
	if diff := cmp.Diff([][]byte{[]byte("one"), []byte("two")}, data); diff != "" {
		t.Error(diff)
	}
	if !bytes.HasSuffix(raw, m.Bare()) || !bytes.Contains(m.Bare(), body) {
		t.Error("the bare message is not what was sent")
	}

	m.MergeAppProperties(wire.Map{{Key: wire.Symbol("new"), Value: "v"}, {Key: "k", Value: int32(2)}})
	m.SetID("other")
	again, err := wire.ParseMessage(append(m.AppendHead(nil, 3, 500, nil, wire.Map{{Key: wire.Symbol("x"), Value: int64(1)}}), m.Bare()...))
	if err != nil {
		t.Fatal(err)
	}
	want := wire.Map{{Key: "k", Value: int32(2)}, {Key: "new", Value: "v"}}
	if diff := cmp.Diff(want, again.AppProperties()); diff != "" {
		t.Errorf("application properties (-want +got):\n%s", diff)
	}
	if again.ID() != "other" || again.Properties().To != "to" || again.TTL != 500 || !again.Durable {
		t.Errorf("message = %+v", again)
	}
	if !bytes.Contains(again.Bare(), body) || again.Annotations.Get("x") != int64(1) || again.DeliveryAnnotations.Get("d") != int32(1) {
		t.Errorf("body or annotations were lost: %+v", again)
	}
}

func TestParseMessageForms(t *testing.T) {
	for _, tc := range []struct {
		name string
		raw  []byte
		ok   bool
	}{
		{"nothing", nil, true},
		{"header alone", section(0x70, wire.List{}), true},
		{"value", section(0x77, "v"), true},
		{"null value", section(0x77, nil), true},
		{"two sequences", append(section(0x76, wire.List{"a"}), section(0x76, wire.List{"b"})...), true},
		{"properties after application properties", append(section(0x74, wire.Map{}), section(0x73, wire.List{})...), false},
		{"null data", section(0x75, nil), true},
		{"two values", append(section(0x77, "a"), section(0x77, "b")...), false},
		{"data and value", append(section(0x75, []byte("a")), section(0x77, "b")...), false},
		{"data that is a string", section(0x75, "a"), false},
		{"unknown section", section(0x79, "a"), false},
		{"no section", []byte{0x40}, false},
		{"cut", section(0x75, []byte("abc"))[:5], false},
	} {
		m, err := wire.ParseMessage(tc.raw)
		if (err == nil) != tc.ok {
			t.Errorf("%s: ParseMessage = %v, want ok %v", tc.name, err, tc.ok)
		}
		if err != nil {
			continue
		}
		m.SetID("id")
		m.MergeAppProperties(wire.Map{{Key: "k", Value: "v"}})
		again, err := wire.ParseMessage(m.Bare())
		if err != nil || again.ID() != "id" || again.AppProperties().Text("k") != "v" {
			t.Errorf("%s: after changes: %v", tc.name, err)
		}
	}
}
