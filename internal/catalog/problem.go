package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Problem is one thing that is wrong with a catalog. The error of Load and Parse joins all of them; errors.As finds the first.
type Problem struct {
	// File, Line and Column are where, counted from one; Line is zero if the file as a whole is meant.
	File         string
	Line, Column int
	// Path is which setting, as in "tenants.acme.weight". It may be empty.
	Path string
	// Message says what is wrong and what to do. It holds no values that may be secret.
	Message string
}

// Error returns one line that begins with file:line:column.
func (p *Problem) Error() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	}
	if p.Path == "" {
		return where + ": " + p.Message
	}
	return where + ": " + p.Path + ": " + p.Message
}

// join returns the problems as one error in the order of the file, or nil.
func join(problems []*Problem) error {
	slices.SortStableFunc(problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}
