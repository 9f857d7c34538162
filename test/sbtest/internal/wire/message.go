package wire

import (
	"encoding/binary"
	"fmt"
)

// BatchFormat is the message-format of a batch: an envelope whose data sections
// each hold one complete encoded message.
const BatchFormat = 0x80013700

// Section descriptors of part 3.2.
const (
	sectionHeader              = 0x70
	sectionDeliveryAnnotations = 0x71
	sectionAnnotations         = 0x72
	sectionProperties          = 0x73
	sectionAppProperties       = 0x74
	sectionData                = 0x75
	sectionSequence            = 0x76
	sectionValue               = 0x77
	sectionFooter              = 0x78
)

// Message is an encoded message taken apart as far as a broker needs: the
// sections it may change are decoded, everything from the properties on stays
// as the bytes the sender wrote.
type Message struct {
	Durable     bool
	Priority    uint8
	HasPriority bool
	TTL         uint32 // milliseconds
	HasTTL      bool

	DeliveryAnnotations Map
	Annotations         Map

	bare       []byte // properties, application properties, body, footer
	props      int    // end of the properties section in bare
	appProps   int    // end of the application-properties section; == props if absent
	footer     int    // start of the footer; == len(bare) if absent
	properties Properties
}

// Properties are the fields of the properties section that a broker or a test
// looks at (part 3.2.4). The ids keep their AMQP type; nil is absent.
type Properties struct {
	MessageID       any
	To              string
	Subject         string
	ReplyTo         string
	CorrelationID   any
	ContentType     string
	ContentEncoding string
	GroupID         string
}

// ParseMessage takes b apart. The message keeps parts of b.
func ParseMessage(b []byte) (*Message, error) {
	m := &Message{}
	rest := b
	last := uint64(0)
	for len(rest) > 0 {
		if rest[0] != codeDescribed {
			return nil, fmt.Errorf("constructor 0x%02x where a section belongs: %w", rest[0], ErrType)
		}
		code, body, err := descriptor(rest[1:])
		if err != nil {
			return nil, err
		}
		repeats := code == last && (code == sectionData || code == sectionSequence)
		if code < sectionHeader || code > sectionFooter || code <= last && !repeats {
			return nil, fmt.Errorf("section 0x%02x after 0x%02x: %w", code, last, ErrInvalid)
		}
		if last >= sectionData && last < code && code != sectionFooter { // one kind of body only
			return nil, fmt.Errorf("section 0x%02x after 0x%02x: %w", code, last, ErrInvalid)
		}
		after, err := Skip(body)
		if err != nil {
			return nil, err
		}
		if code >= sectionProperties && m.bare == nil {
			m.bare = rest
		}
		at := len(m.bare) - len(after)
		switch code {
		case sectionHeader:
			err = m.parseHeader(body)
		case sectionDeliveryAnnotations:
			m.DeliveryAnnotations, err = decodeMap(body)
		case sectionAnnotations:
			m.Annotations, err = decodeMap(body)
		case sectionProperties:
			m.props, m.appProps = at, at
			err = m.properties.unmarshal(body)
		case sectionAppProperties:
			m.appProps = at
			_, err = decodeMap(body)
		case sectionData:
			// Null is not a data section by part 3.2.6, but producers send it and
			// the service passes it on.
			if k := body[0]; k != codeBinary8 && k != codeBinary32 && k != codeNull {
				err = ErrType
			}
		}
		if err != nil {
			return nil, fmt.Errorf("section 0x%02x: %w", code, err)
		}
		switch {
		case m.bare == nil:
		case code == sectionFooter:
			m.footer = len(m.bare) - len(rest)
		default:
			m.footer = at
		}
		last, rest = code, after
	}
	return m, nil
}

func decodeMap(b []byte) (Map, error) {
	v, _, err := Decode(b)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case Map:
		return v, nil
	case nil:
		return nil, nil
	}
	return nil, fmt.Errorf("%T where a map belongs: %w", v, ErrType)
}

func (m *Message) parseHeader(b []byte) error {
	f, _, err := ParseFields(b)
	if err != nil {
		return err
	}
	m.Durable = f.Bool()
	p, ok := f.Uint()
	m.Priority, m.HasPriority = uint8(p), ok
	m.TTL, m.HasTTL = f.Uint32()
	return f.Err()
}

func (p *Properties) unmarshal(b []byte) error {
	f, _, err := ParseFields(b)
	if err != nil {
		return err
	}
	p.MessageID = f.Value()
	f.Raw() // user-id
	p.To, _ = f.Text()
	p.Subject, _ = f.Text()
	p.ReplyTo, _ = f.Text()
	p.CorrelationID = f.Value()
	p.ContentType, _ = f.Text()
	p.ContentEncoding, _ = f.Text()
	f.Raw() // absolute-expiry-time
	f.Raw() // creation-time
	p.GroupID, _ = f.Text()
	return f.Err()
}

// Properties returns the decoded properties.
func (m *Message) Properties() Properties { return m.properties }

// ID is the message id as text, "" if there is none.
func (m *Message) ID() string { return IDText(m.properties.MessageID) }

// IDText is a message or correlation id of any of its AMQP types as text, "" for
// nil.
func IDText(id any) string {
	switch id := id.(type) {
	case nil:
		return ""
	case string:
		return id
	case UUID:
		return id.String()
	case []byte:
		return string(id)
	}
	return fmt.Sprint(id)
}

// SetID puts id into the properties, which is what Service Bus does for a
// message that came without one.
func (m *Message) SetID(id string) {
	var fields List
	if m.props > 0 {
		_, body, _ := descriptor(m.bare[1:])
		v, _, err := Decode(body)
		if l, ok := v.(List); err == nil && ok {
			fields = l
		}
	}
	if len(fields) == 0 {
		fields = List{nil}
	}
	fields[0] = id
	head := Append(nil, Described{uint64(sectionProperties), fields})
	m.splice(0, m.props, head)
	m.props += len(head) - m.props
	m.properties.MessageID = id
}

// splice replaces bare[from:to]; the offsets after it move along.
func (m *Message) splice(from, to int, with []byte) {
	grow := len(with) - (to - from)
	b := make([]byte, 0, len(m.bare)+grow)
	b = append(b, m.bare[:from]...)
	b = append(b, with...)
	b = append(b, m.bare[to:]...)
	m.bare = b
	m.appProps += grow
	m.footer += grow
}

// AppProperties decodes the application properties.
func (m *Message) AppProperties() Map {
	if m.appProps == m.props {
		return nil
	}
	_, body, _ := descriptor(m.bare[m.props+1:])
	v, _ := decodeMap(body) // checked by ParseMessage
	return v
}

// MergeAppProperties sets the given application properties and keeps the others.
func (m *Message) MergeAppProperties(set Map) {
	if len(set) == 0 {
		return
	}
	props := m.AppProperties()
	for _, p := range set {
		key, ok := p.Key.(string)
		if s, isSymbol := p.Key.(Symbol); isSymbol {
			key, ok = string(s), true
		}
		if ok {
			props = props.Set(key, p.Value)
		}
	}
	m.splice(m.props, m.appProps, Append(nil, Described{uint64(sectionAppProperties), props}))
}

// Body returns the contents of the data sections, or the decoded value of a
// value section, or the list of the sequence sections.
func (m *Message) Body() (data [][]byte, value any) {
	rest := m.bare[m.appProps:m.footer]
	for len(rest) > 0 {
		code, body, err := descriptor(rest[1:])
		if err != nil {
			return data, value
		}
		if rest, err = Skip(body); err != nil {
			return data, value
		}
		switch code {
		case sectionData:
			if body[0] == codeNull {
				data = append(data, nil)
				continue
			}
			data = append(data, body[1+lenWidth(body[0]):len(body)-len(rest)])
		case sectionValue:
			value, _, _ = Decode(body)
		case sectionSequence:
			v, _, _ := Decode(body)
			l, _ := value.(List)
			if s, ok := v.(List); ok {
				value = append(l, s...)
			}
		}
	}
	return data, value
}

// Bare returns the sections from the properties on, as they are kept.
func (m *Message) Bare() []byte { return m.bare }

// Size is the number of bytes kept for the message, about its size on the wire.
func (m *Message) Size() int {
	return len(m.bare) + 32*(2+len(m.Annotations)+len(m.DeliveryAnnotations))
}

// AppendHead writes header, delivery annotations and message annotations; the
// bare message follows them. The extra pairs are added to the sender's, whose
// pairs of the same keys the caller has removed.
func (m *Message) AppendHead(b []byte, deliveryCount uint32, ttl uint32, delivery, annotations Map) []byte {
	l := described(b, sectionHeader)
	if m.Durable {
		l.bool(true)
	} else {
		l.null()
	}
	if m.HasPriority {
		l.ubyte(m.Priority)
	} else {
		l.null()
	}
	l.optUint(ttl, ttl != 0)
	l.null()
	l.uint(deliveryCount)
	b = l.done()
	b = appendAnnotations(b, sectionDeliveryAnnotations, m.DeliveryAnnotations, delivery)
	return appendAnnotations(b, sectionAnnotations, m.Annotations, annotations)
}

func appendAnnotations(b []byte, section byte, own, extra Map) []byte {
	if len(own)+len(extra) == 0 {
		return b
	}
	b = append(b, codeDescribed, codeSmallUlong, section, codeMap32)
	start := len(b)
	b = append(b, make([]byte, 8)...)
	for _, m := range []Map{own, extra} {
		for _, p := range m {
			b = Append(Append(b, p.Key), p.Value)
		}
	}
	return patch(b, start, 2*(len(own)+len(extra)))
}

// Built is what AppendMessage writes.
type Built struct {
	TTL           uint32 // milliseconds; 0 is none
	Annotations   Map
	MessageID     any
	To            string
	Subject       string
	ReplyTo       string
	CorrelationID any
	ContentType   string
	GroupID       string
	AppProperties Map
	Data          []byte // one data section, unless HasValue
	Value         any
	HasValue      bool
}

// AppendMessage encodes a message.
func AppendMessage(b []byte, m *Built) []byte {
	if m.TTL != 0 {
		b = Append(b, Described{uint64(sectionHeader), List{nil, nil, m.TTL}})
	}
	if m.Annotations != nil {
		b = Append(b, Described{uint64(sectionAnnotations), m.Annotations})
	}
	l := described(b, sectionProperties)
	text := func(s string) {
		if s == "" {
			l.null()
			return
		}
		l.string(s)
	}
	id := func(v any) {
		if v == nil {
			l.null()
			return
		}
		l.value(v)
	}
	id(m.MessageID)
	l.null()
	text(m.To)
	text(m.Subject)
	text(m.ReplyTo)
	id(m.CorrelationID)
	if m.ContentType == "" {
		l.null()
	} else {
		l.symbol(m.ContentType)
	}
	for range 3 {
		l.null()
	}
	text(m.GroupID)
	if l.keep > 0 {
		b = l.done()
	}
	if m.AppProperties != nil {
		b = Append(b, Described{uint64(sectionAppProperties), m.AppProperties})
	}
	if m.HasValue {
		return Append(b, Described{uint64(sectionValue), m.Value})
	}
	b = append(b, codeDescribed, codeSmallUlong, sectionData, codeBinary32)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Data)))
	return append(b, m.Data...)
}
