package wire

// Flow is part 2.7.4. It concerns a link when HasHandle is set.
type Flow struct {
	NextIncomingID    uint32
	HasNextIncomingID bool
	IncomingWindow    uint32
	NextOutgoingID    uint32
	OutgoingWindow    uint32
	Handle            uint32
	HasHandle         bool
	DeliveryCount     uint32
	HasDeliveryCount  bool
	LinkCredit        uint32
	HasLinkCredit     bool
	Available         uint32
	HasAvailable      bool
	Drain             bool
	Echo              bool
}

// Unmarshal fills w from the fields.
func (w *Flow) Unmarshal(f Fields) error {
	w.NextIncomingID, w.HasNextIncomingID = f.Uint32()
	w.IncomingWindow, _ = f.Uint32()
	w.NextOutgoingID, _ = f.Uint32()
	w.OutgoingWindow, _ = f.Uint32()
	w.Handle, w.HasHandle = f.Uint32()
	w.DeliveryCount, w.HasDeliveryCount = f.Uint32()
	w.LinkCredit, w.HasLinkCredit = f.Uint32()
	w.Available, w.HasAvailable = f.Uint32()
	w.Drain = f.Bool()
	w.Echo = f.Bool()
	return f.Err()
}

// Append writes w.
func (w *Flow) Append(b []byte) []byte {
	l := described(b, CodeFlow)
	l.optUint(w.NextIncomingID, w.HasNextIncomingID)
	l.uint(w.IncomingWindow)
	l.uint(w.NextOutgoingID)
	l.uint(w.OutgoingWindow)
	l.optUint(w.Handle, w.HasHandle)
	l.optUint(w.DeliveryCount, w.HasDeliveryCount)
	l.optUint(w.LinkCredit, w.HasLinkCredit)
	l.optUint(w.Available, w.HasAvailable)
	if w.Drain {
		l.bool(true)
	} else {
		l.null()
	}
	if w.Echo {
		l.bool(true)
	}
	return l.done()
}

// Transfer is part 2.7.5. The payload follows it in the frame.
type Transfer struct {
	Handle        uint32
	DeliveryID    uint32
	HasDeliveryID bool
	Tag           []byte // valid as long as the frame it was read from
	Format        uint32
	HasFormat     bool
	Settled       bool
	More          bool
	Aborted       bool
}

// Unmarshal fills t from the fields.
func (t *Transfer) Unmarshal(f Fields) error {
	t.Handle, _ = f.Uint32()
	t.DeliveryID, t.HasDeliveryID = f.Uint32()
	t.Tag = f.Binary()
	t.Format, t.HasFormat = f.Uint32()
	t.Settled = f.Bool()
	t.More = f.Bool()
	f.Uint() // rcv-settle-mode
	f.Raw()  // state
	f.Bool() // resume
	t.Aborted = f.Bool()
	return f.Err()
}

// Append writes t.
func (t *Transfer) Append(b []byte) []byte {
	l := described(b, CodeTransfer)
	l.uint(t.Handle)
	l.optUint(t.DeliveryID, t.HasDeliveryID)
	if t.Tag != nil {
		l.binary(t.Tag)
	} else {
		l.null()
	}
	l.optUint(t.Format, t.HasFormat)
	l.bool(t.Settled)
	l.bool(t.More)
	for range 3 {
		l.null()
	}
	if t.Aborted {
		l.bool(true)
	}
	return l.done()
}

// State is a delivery state (part 3.4). Code 0 is no state.
type State struct {
	Code            Code
	Error           *Error // of rejected
	DeliveryFailed  bool   // of modified
	UndeliverableAt bool   // of modified: undeliverable-here
	Annotations     Map    // of modified: message-annotations
}

func (s *State) unmarshal(raw []byte) error {
	*s = State{}
	if raw == nil {
		return nil
	}
	code, f, _, err := ParseDescribed(raw)
	if err != nil {
		return err
	}
	s.Code = Code(code)
	switch s.Code {
	case CodeRejected:
		if s.Error, err = parseError(f.Raw()); err != nil {
			return err
		}
	case CodeModified:
		s.DeliveryFailed = f.Bool()
		s.UndeliverableAt = f.Bool()
		s.Annotations = f.Map()
	}
	return f.Err()
}

func (s *State) append(b []byte) []byte {
	l := described(b, s.Code)
	switch s.Code {
	case CodeRejected:
		if s.Error != nil {
			l.b = s.Error.append(l.b)
			l.wrote()
		}
	case CodeModified:
		l.bool(s.DeliveryFailed)
		l.bool(s.UndeliverableAt)
		if s.Annotations != nil {
			l.value(s.Annotations)
		}
	}
	return l.done()
}

// Disposition is part 2.7.6. Receiver is the role of the side that sends it;
// Last equals First when absent.
type Disposition struct {
	Receiver bool
	First    uint32
	Last     uint32
	Settled  bool
	State    State
}

// Unmarshal fills d from the fields.
func (d *Disposition) Unmarshal(f Fields) error {
	d.Receiver = f.Bool()
	d.First, _ = f.Uint32()
	last, ok := f.Uint32()
	if d.Last = last; !ok {
		d.Last = d.First
	}
	d.Settled = f.Bool()
	raw := f.Raw()
	if err := f.Err(); err != nil {
		return err
	}
	return d.State.unmarshal(raw)
}

// Append writes d.
func (d *Disposition) Append(b []byte) []byte {
	l := described(b, CodeDisposition)
	l.bool(d.Receiver)
	l.uint(d.First)
	l.optUint(d.Last, d.Last != d.First)
	l.bool(d.Settled)
	if d.State.Code != 0 {
		l.b = d.State.append(l.b)
		l.wrote()
	}
	return l.done()
}
