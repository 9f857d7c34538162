package sbtest

import (
	"strings"
	"time"

	"millrace/test/sbtest/internal/wire"
)

// maxReplies is how many answers may wait for a client's credit before the
// connection is given up.
const maxReplies = 10_000

// answer is what a request gets: a status and, for some, a body.
type answer struct {
	status      int
	description string
	body        wire.Map
}

// serveRequest executes a request to $cbs or a management node and sends the
// answer to the link that the request names.
func (l *link) serveRequest(data []byte) {
	c := l.ss.c
	m, err := wire.ParseMessage(data)
	if err != nil {
		c.s.log("request not understood", "conn", c.id, "error", err)
		return
	}
	props := m.Properties()
	args := m.AppProperties()
	_, value := m.Body()
	op := strings.TrimPrefix(args.Text("operation"), "com.microsoft:")
	var a answer
	if l.node == nil {
		a = c.putToken(op, args)
	} else if f := c.s.faults.strike(OnRequest, l.node.path, op); f != nil {
		if f.Cut {
			c.nc.Close()
		}
		if f.Status == 0 {
			return
		}
		a = answer{status: f.Status, description: f.Description}
	} else {
		body, _ := value.(wire.Map)
		a = l.node.manage(op, body)
		if f := c.s.faults.strike(OnRequestReply, l.node.path, op); f != nil {
			if f.Cut {
				c.nc.Close()
			}
			return
		}
		c.touch(args.Text("associated-link-name"))
	}
	if a.status == 0 {
		return
	}
	reply := wire.AppendMessage(nil, &wire.Built{
		CorrelationID: m.ID(), // always as a string: clients look it up as one
		AppProperties: wire.Map{
			{Key: "statusCode", Value: int32(a.status)},
			{Key: "status-code", Value: int32(a.status)},
			{Key: "statusDescription", Value: a.description},
			{Key: "status-description", Value: a.description},
		},
		Value: a.value(), HasValue: true,
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	to := l.answerTo(props.ReplyTo)
	if to == nil {
		c.s.log("no link for an answer", "conn", c.id, "operation", op)
		return
	}
	if len(to.replies) >= maxReplies {
		c.nc.Close()
		return
	}
	to.replies = append(to.replies, reply)
	to.sendReplies()
}

func (a *answer) value() any {
	if a.body == nil {
		return nil
	}
	return a.body
}

// answerTo finds the link an answer goes to: by its target address, else by its
// name, else the one beside the request. The caller holds the connection's lock.
func (l *link) answerTo(replyTo string) *link {
	var byName, beside *link
	for _, ss := range l.ss.c.sessions {
		for _, o := range ss.links {
			switch {
			case o.kind != response || o.detached || o.node != l.node:
			case replyTo != "" && o.reply == replyTo:
				return o
			case replyTo != "" && o.name == replyTo:
				byName = o
			case ss == l.ss:
				beside = o
			}
		}
	}
	if byName != nil {
		return byName
	}
	return beside
}

// sendReplies sends answers as far as the client's credit goes. The caller holds
// the connection's lock.
func (l *link) sendReplies() {
	for len(l.replies) > 0 && l.credit > 0 {
		id := l.ss.nextDelivery
		l.ss.nextDelivery++
		l.credit--
		l.count++
		l.ss.post(l, wire.Transfer{
			Handle: l.handle, DeliveryID: id, HasDeliveryID: true,
			Tag: []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}, HasFormat: true, Settled: true,
		}, l.replies[0])
		l.replies[0] = nil
		l.replies = l.replies[1:]
	}
}

// touch keeps the link that a management request belongs to from being idle.
func (c *conn) touch(linkName string) {
	if c.s.LinkIdle == 0 || linkName == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ss := range c.sessions {
		for _, l := range ss.links {
			if l.name == linkName {
				l.used = time.Now()
			}
		}
	}
}

// putToken answers a claim to act on an entity. Every token is good; what it
// speaks of must exist, because only here do clients learn "not found" as such.
func (c *conn) putToken(op string, args wire.Map) answer {
	if op != "put-token" {
		return answer{status: 404, description: "unknown operation"}
	}
	path := entityPath(args.Text("name"))
	path, _ = cutSuffixFold(path, managementSuffix)
	if f := c.s.faults.strike(OnToken, path, op); f != nil {
		if f.Cut {
			c.nc.Close()
		}
		return answer{status: f.Status, description: f.Description}
	}
	if _, err := c.s.lookup(path); err != nil {
		return answer{
			status:      404,
			description: "The messaging entity '" + path + "' could not be found. To know more visit https://aka.ms/sbResourceMgrExceptions.",
		}
	}
	return answer{status: 202, description: "Accepted"}
}
