package quota

import (
	"slices"
	"strings"
	"time"
)

// Blocked names what the first waiter waits for. It is empty if nobody waits.
type Blocked string

// The causes of a wait.
const (
	// BlockedClosed means that the share's cap is zero.
	BlockedClosed Blocked = "closed"
	// BlockedPaused means that a Pause has not ended.
	BlockedPaused Blocked = "paused"
	// BlockedWindow means that the first waiter does not fit beside what the window holds.
	BlockedWindow Blocked = "window"
	// BlockedRate means that the request pace has no place yet.
	BlockedRate Blocked = "rate"
)

// Stats is a snapshot of a limiter, for metrics and for the question why nothing is sent.
type Stats struct {
	// Used is the occupancy of the window in tokens, InFlight the part of it that is reserved and not sent.
	Used, InFlight int
	// Cap is what the share allows, and CapUntil when it is asked again.
	Cap      int
	CapUntil time.Time
	// PausedUntil is when the latest pause ends or ended; zero if there never was one.
	PausedUntil time.Time
	// Waiting is the number of callers inside Reserve, and WaitingTokens the sum of their sizes.
	Waiting, WaitingTokens int
	// Blocked says what the first of them waits for, NextTokens how large it is, NextTenant whose it is, and NextAt when the limiter
	// looks again unless something happens before.
	Blocked    Blocked
	NextTenant string
	NextTokens int
	NextAt     time.Time
	// Tenants lists the tenants that wait, by name.
	Tenants []TenantStats
}

// TenantStats is one tenant's part of the waiting line.
type TenantStats struct {
	// Tenant is its name and Weight its weight in force.
	Tenant string
	Weight float64
	// Waiting is the number of its callers inside Reserve, and Tokens the sum of their sizes.
	Waiting, Tokens int
}

// Stats returns a snapshot taken now.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.now()
	l.dispatch(t)
	s := Stats{
		Used:          l.window.used(),
		InFlight:      l.window.open,
		Cap:           l.limit,
		CapUntil:      l.limitUntil,
		PausedUntil:   l.pausedUntil,
		Waiting:       l.line.waiting,
		WaitingTokens: l.line.tokens,
	}
	head := l.line.head()
	if head == nil {
		return s
	}
	s.Blocked, _ = l.blocked(t, head.tokens)
	s.NextTenant, s.NextTokens, s.NextAt = head.tenant.name, head.tokens, l.dueAt
	for _, tn := range l.line.queue {
		s.Tenants = append(s.Tenants, TenantStats{Tenant: tn.name, Weight: l.weight(tn.name), Waiting: tn.waiting, Tokens: tn.held})
	}
	slices.SortFunc(s.Tenants, func(a, b TenantStats) int { return strings.Compare(a.Tenant, b.Tenant) })
	return s
}
