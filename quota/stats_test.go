package quota_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/quota"
)

func TestLimiterStatsNameTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.New(quota.Static(100), &quota.Options{Weights: map[string]float64{"b": 2, "c": -1}})
		held, _ := l.TryReserve("a", 100)
		start := time.Now()
		held.Sent()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i, tenant := range []string{"b", "a", "b", "c"} {
			wg.Go(func() { _, _ = l.Reserve(ctx, tenant, 10+i) })
			synctest.Wait()
		}
		got := l.Stats()
		got.CapUntil = time.Time{}
		want := quota.Stats{
			Used: 100, Cap: 100, Waiting: 4, WaitingTokens: 46,
			Blocked: quota.BlockedWindow, NextTenant: "b", NextTokens: 10, NextAt: start.Add(quota.DefaultWindow),
			Tenants: []quota.TenantStats{{"a", 1, 1, 11}, {"b", 2, 2, 22}, {"c", 1, 1, 13}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Stats (-want +got):\n%s", diff)
		}
		cancel()
		wg.Wait()
		if got := l.Stats(); got.Waiting != 0 || got.Blocked != "" || got.Tenants != nil {
			t.Errorf("Stats with nobody waiting = %+v", got)
		}
	})
}
