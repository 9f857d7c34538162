package wire

// Code is the numeric descriptor of a performative, outcome or terminus.
type Code uint64

// Descriptors of parts 2.7, 3.4, 3.5, 4.5 and 5.3.
const (
	CodeOpen        Code = 0x10
	CodeBegin       Code = 0x11
	CodeAttach      Code = 0x12
	CodeFlow        Code = 0x13
	CodeTransfer    Code = 0x14
	CodeDisposition Code = 0x15
	CodeDetach      Code = 0x16
	CodeEnd         Code = 0x17
	CodeClose       Code = 0x18
	CodeError       Code = 0x1d
	CodeReceived    Code = 0x23
	CodeAccepted    Code = 0x24
	CodeRejected    Code = 0x25
	CodeReleased    Code = 0x26
	CodeModified    Code = 0x27
	CodeSource      Code = 0x28
	CodeTarget      Code = 0x29
	CodeCoordinator Code = 0x30
	CodeMechanisms  Code = 0x40
	CodeInit        Code = 0x41
	CodeOutcome     Code = 0x44
)

// Performative is a frame body that can be written.
type Performative interface {
	Append(b []byte) []byte
}

// Open is part 2.7.1. Zero MaxFrameSize and IdleTimeOut mean absent;
// ChannelMax is read as 65535 when absent.
type Open struct {
	ContainerID  string
	Hostname     string
	MaxFrameSize uint32
	ChannelMax   uint16
	IdleTimeOut  uint32 // milliseconds
	Properties   Map
}

// Unmarshal fills o from the fields.
func (o *Open) Unmarshal(f Fields) error {
	*o = Open{ChannelMax: 65535}
	o.ContainerID, _ = f.Text()
	o.Hostname, _ = f.Text()
	o.MaxFrameSize, _ = f.Uint32()
	if v, ok := f.Uint32(); ok && v < 65535 {
		o.ChannelMax = uint16(v)
	}
	o.IdleTimeOut, _ = f.Uint32()
	for range 4 { // locales and capabilities
		f.Raw()
	}
	o.Properties = f.Map()
	return f.Err()
}

// Append writes o.
func (o *Open) Append(b []byte) []byte {
	l := described(b, CodeOpen)
	l.string(o.ContainerID)
	if o.Hostname == "" {
		l.null()
	} else {
		l.string(o.Hostname)
	}
	l.optUint(o.MaxFrameSize, o.MaxFrameSize != 0)
	l.ushort(o.ChannelMax)
	l.optUint(o.IdleTimeOut, o.IdleTimeOut != 0)
	for range 4 {
		l.null()
	}
	if o.Properties != nil {
		l.value(o.Properties)
	}
	return l.done()
}

// Begin is part 2.7.2. RemoteChannel is written when HasRemote is set.
type Begin struct {
	RemoteChannel  uint16
	HasRemote      bool
	NextOutgoingID uint32
	IncomingWindow uint32
	OutgoingWindow uint32
	HandleMax      uint32
}

// Unmarshal fills g from the fields.
func (g *Begin) Unmarshal(f Fields) error {
	*g = Begin{HandleMax: 1<<32 - 1}
	v, ok := f.Uint32()
	g.RemoteChannel, g.HasRemote = uint16(v), ok
	g.NextOutgoingID, _ = f.Uint32()
	g.IncomingWindow, _ = f.Uint32()
	g.OutgoingWindow, _ = f.Uint32()
	if v, ok := f.Uint32(); ok {
		g.HandleMax = v
	}
	return f.Err()
}

// Append writes g.
func (g *Begin) Append(b []byte) []byte {
	l := described(b, CodeBegin)
	if g.HasRemote {
		l.ushort(g.RemoteChannel)
	} else {
		l.null()
	}
	l.uint(g.NextOutgoingID)
	l.uint(g.IncomingWindow)
	l.uint(g.OutgoingWindow)
	l.uint(g.HandleMax)
	return l.done()
}

// Terminus is a source, a target or a coordinator (parts 3.5.3, 3.5.4, 4.5.1).
// Raw holds its bytes as received, so that a reply can repeat it exactly; when
// Raw is nil the address alone is written.
type Terminus struct {
	Code    Code
	Address string
	Filter  Map // of a source
	Raw     []byte
}

func parseTerminus(raw []byte) (*Terminus, error) {
	if raw == nil {
		return nil, nil
	}
	code, f, _, err := ParseDescribed(raw)
	if err != nil {
		return nil, err
	}
	t := &Terminus{Code: Code(code), Raw: append([]byte(nil), raw...)}
	if t.Code == CodeCoordinator {
		return t, nil
	}
	switch a := f.Value().(type) { // address, of any type; in practice a string
	case string:
		t.Address = a
	case Symbol:
		t.Address = string(a)
	}
	if t.Code == CodeSource {
		for range 6 { // durable … distribution-mode
			f.Raw()
		}
		t.Filter = f.Map()
	}
	return t, f.Err()
}

func (t *Terminus) append(b []byte) []byte {
	if t.Raw != nil {
		return append(b, t.Raw...)
	}
	l := described(b, t.Code)
	if t.Address != "" {
		l.string(t.Address)
	}
	return l.done()
}

// Settle modes of a link (part 2.8.2 and 2.8.3), with absent as the default.
const (
	SendUnsettled uint8 = 0
	SendSettled   uint8 = 1
	SendMixed     uint8 = 2
	ReceiveFirst  uint8 = 0
	ReceiveSecond uint8 = 1
)

// Attach is part 2.7.3. Receiver is the role of the side that sends it.
type Attach struct {
	Name                 string
	Handle               uint32
	Receiver             bool
	SendMode             uint8
	ReceiveMode          uint8
	Source               *Terminus
	Target               *Terminus
	InitialDeliveryCount uint32 // written by senders only
	MaxMessageSize       uint64 // 0 is absent: no limit
	Properties           Map
}

// Unmarshal fills a from the fields.
func (a *Attach) Unmarshal(f Fields) error {
	*a = Attach{SendMode: SendMixed}
	a.Name, _ = f.Text()
	a.Handle, _ = f.Uint32()
	a.Receiver = f.Bool()
	if v, ok := f.Uint(); ok {
		a.SendMode = uint8(v)
	}
	if v, ok := f.Uint(); ok {
		a.ReceiveMode = uint8(v)
	}
	source, target := f.Raw(), f.Raw()
	f.Raw() // unsettled
	f.Bool()
	a.InitialDeliveryCount, _ = f.Uint32()
	a.MaxMessageSize, _ = f.Uint()
	f.Raw()
	f.Raw() // capabilities
	a.Properties = f.Map()
	if err := f.Err(); err != nil {
		return err
	}
	var err error
	if a.Source, err = parseTerminus(source); err != nil {
		return err
	}
	a.Target, err = parseTerminus(target)
	return err
}

// Append writes a.
func (a *Attach) Append(b []byte) []byte {
	l := described(b, CodeAttach)
	l.string(a.Name)
	l.uint(a.Handle)
	l.bool(a.Receiver)
	l.ubyte(a.SendMode)
	l.ubyte(a.ReceiveMode)
	for _, t := range []*Terminus{a.Source, a.Target} {
		if t == nil {
			l.null()
			continue
		}
		l.b = t.append(l.b)
		l.wrote()
	}
	l.null()
	l.null()
	l.optUint(a.InitialDeliveryCount, !a.Receiver)
	if a.MaxMessageSize != 0 {
		l.ulong(a.MaxMessageSize)
	} else {
		l.null()
	}
	l.null()
	l.null()
	if a.Properties != nil {
		l.value(a.Properties)
	}
	return l.done()
}

// Error is part 2.8.14.
type Error struct {
	Condition   string
	Description string
	Info        Map
}

// Error makes it a Go error.
func (e *Error) Error() string { return e.Condition + ": " + e.Description }

func parseError(raw []byte) (*Error, error) {
	if raw == nil {
		return nil, nil
	}
	code, f, _, err := ParseDescribed(raw)
	if err != nil {
		return nil, err
	}
	if Code(code) != CodeError {
		return nil, ErrType
	}
	e := &Error{}
	e.Condition, _ = f.Text()
	e.Description, _ = f.Text()
	e.Info = f.Map()
	return e, f.Err()
}

func (e *Error) append(b []byte) []byte {
	l := described(b, CodeError)
	l.symbol(e.Condition)
	if e.Description != "" {
		l.string(e.Description)
	} else {
		l.null()
	}
	if e.Info != nil {
		l.value(e.Info)
	}
	return l.done()
}

// Detach is part 2.7.7.
type Detach struct {
	Handle uint32
	Closed bool
	Error  *Error
}

// Unmarshal fills d from the fields.
func (d *Detach) Unmarshal(f Fields) (err error) {
	*d = Detach{}
	d.Handle, _ = f.Uint32()
	d.Closed = f.Bool()
	raw := f.Raw()
	if err = f.Err(); err != nil {
		return err
	}
	d.Error, err = parseError(raw)
	return err
}

// Append writes d.
func (d *Detach) Append(b []byte) []byte {
	l := described(b, CodeDetach)
	l.uint(d.Handle)
	l.bool(d.Closed)
	if d.Error != nil {
		l.b = d.Error.append(l.b)
		l.wrote()
	}
	return l.done()
}

// End is part 2.7.8, Close part 2.7.9; they differ in their descriptor only.
type (
	End   struct{ Error *Error }
	Close struct{ Error *Error }
)

// Unmarshal fills e from the fields.
func (e *End) Unmarshal(f Fields) (err error) {
	e.Error, err = parseError(f.Raw())
	return err
}

// Append writes e.
func (e *End) Append(b []byte) []byte { return appendEnd(b, CodeEnd, e.Error) }

// Unmarshal fills c from the fields.
func (c *Close) Unmarshal(f Fields) (err error) {
	c.Error, err = parseError(f.Raw())
	return err
}

// Append writes c.
func (c *Close) Append(b []byte) []byte { return appendEnd(b, CodeClose, c.Error) }

func appendEnd(b []byte, code Code, e *Error) []byte {
	l := described(b, code)
	if e != nil {
		l.b = e.append(l.b)
		l.wrote()
	}
	return l.done()
}
