package infer

import (
	"sync"

	"millrace/claimcheck"
)

// maxUnwritten bounds what is kept while results cannot be written, far above the number of slots that can wait for it.
const maxUnwritten = 1024

// unwritten keeps answers that were paid for and could not be written, by the result's name. The worker holds their
// messages and tries them again; without this each try would pay for another answer. What is pushed out, or left behind by
// a message that went to another process, costs one more call and no result.
type unwritten struct {
	mu      sync.Mutex
	results map[string]claimcheck.Result
}

func (u *unwritten) keep(name string, r claimcheck.Result) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.results == nil {
		u.results = make(map[string]claimcheck.Result)
	}
	for other := range u.results {
		if len(u.results) < maxUnwritten {
			break
		}
		delete(u.results, other)
	}
	u.results[name] = r
}

// take returns what is kept under name and keeps it no longer.
func (u *unwritten) take(name string) (claimcheck.Result, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r, ok := u.results[name]
	delete(u.results, name)
	return r, ok
}
