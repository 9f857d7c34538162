package wire

// Mechanisms is sasl-mechanisms (part 5.3.3.1).
type Mechanisms struct{ Names []string }

// Append writes m.
func (m *Mechanisms) Append(b []byte) []byte {
	a := Array{Code: ArraySymbol}
	for _, n := range m.Names {
		a.Elements = append(a.Elements, Symbol(n))
	}
	l := described(b, CodeMechanisms)
	l.value(a)
	return l.done()
}

// Init is sasl-init (part 5.3.3.2). The response is a credential and is not kept.
type Init struct{ Mechanism string }

// Unmarshal fills i from the fields.
func (i *Init) Unmarshal(f Fields) error {
	i.Mechanism, _ = f.Text()
	return f.Err()
}

// Append writes i with an empty response.
func (i *Init) Append(b []byte) []byte {
	l := described(b, CodeInit)
	l.symbol(i.Mechanism)
	l.binary(nil)
	return l.done()
}

// Outcome is sasl-outcome (part 5.3.3.6); code 0 is success.
type Outcome struct{ Code uint8 }

// Append writes o.
func (o *Outcome) Append(b []byte) []byte {
	l := described(b, CodeOutcome)
	l.ubyte(o.Code)
	return l.done()
}
