package infer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"millrace/claimcheck"
	"millrace/internal/model"
	"millrace/quota"
	"millrace/worker"
)

// finding is what the work came to: what the result says.
type finding struct {
	outcome claimcheck.Outcome
	reason  claimcheck.Reason
	detail  string
	text    string
	prompt  claimcheck.PromptUsed
}

func expired() finding {
	return finding{outcome: claimcheck.OutcomeExpired, reason: claimcheck.ReasonDeadline, detail: "the deadline passed before the model was called"}
}

func rejected(reason claimcheck.Reason, detail string) finding {
	return finding{outcome: claimcheck.OutcomeRejected, reason: reason, detail: detail}
}

// empty reports whether there is nothing in an answer that a result could carry: no text, or only calls of tools, which
// nobody offered.
func empty(a *model.Answer) bool {
	return a.Kind == model.Empty || a.Kind == model.Answered && strings.TrimSpace(a.Text) == ""
}

// judge says what an answer means for the document.
func (a *alias) judge(answer *model.Answer) finding {
	f := finding{outcome: claimcheck.OutcomeRefused}
	kind := answer.Kind
	if empty(answer) {
		kind = model.Empty
	}
	switch kind {
	case model.Answered:
		f.outcome, f.text = claimcheck.OutcomeSucceeded, answer.Text
		if a.Schema == nil {
			break
		}
		if err := a.Schema.Check(answer.Text); err != nil {
			f = rejected(claimcheck.ReasonInvalidOutput, err.Error())
		}
	case model.Truncated:
		f.outcome, f.reason, f.text = claimcheck.OutcomeTruncated, claimcheck.ReasonOutputLimit, answer.Text
		if answer.Reason == model.ReasoningLimit {
			f.reason = claimcheck.ReasonReasoningLimit
		}
	case model.PromptFiltered:
		f.reason, f.detail = claimcheck.ReasonPromptFilter, categories(answer)
	case model.OutputFiltered:
		f.reason, f.detail = claimcheck.ReasonOutputFilter, categories(answer)
	case model.ModelRefused:
		f.reason, f.detail = claimcheck.ReasonModelRefusal, "the model declined to answer"
	default:
		f = rejected(claimcheck.ReasonEmptyAnswer, "the model gave no text, twice")
	}
	f.prompt = claimcheck.PromptUsed{Version: a.PromptVersion, Hash: a.PromptHash}
	return f
}

// findingOf reports whether err is about this document for good, and what the result then says.
func findingOf(err error) (finding, bool) {
	var document *claimcheck.DocumentError
	var tooLarge *quota.TooLargeError
	var call *model.Error
	switch {
	case errors.As(err, &document):
		return finding{outcome: document.Outcome, reason: document.Reason, detail: document.Detail}, true
	case errors.Is(err, errDeadline):
		return expired(), true
	case errors.As(err, &tooLarge):
		return rejected(claimcheck.ReasonTPMLimit,
			fmt.Sprintf("the request needs %d tokens, this process may spend %d per minute", tooLarge.Tokens, tooLarge.Limit)), true
	case errors.As(err, &call):
		switch call.Kind {
		case model.ContextLength:
			return rejected(claimcheck.ReasonContextLength, "the document does not fit the model's context window"), true
		case model.RequestParameter:
			return rejected(claimcheck.ReasonRequestParameter, refusal(call)), true
		case model.InvalidMedia:
			return rejected(claimcheck.ReasonInvalidMedia, refusal(call)), true
		case model.TooLarge:
			return rejected(claimcheck.ReasonTPMLimit, "the service says that the request is larger than the deployment's whole limit"), true
		}
	}
	return finding{}, false
}

// described is what a dead letter says; its reason stands in a property of its own.
func described(e *claimcheck.PoisonError) string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// categories names what the content filter saw; never the text it saw it in.
func categories(a *model.Answer) string {
	var seen []string
	for _, f := range a.Filters {
		if f.Severity != "" {
			f.Category += " (" + f.Severity + ")"
		}
		seen = append(seen, f.Category)
	}
	if len(seen) == 0 {
		return "blocked by the content filter"
	}
	return "blocked by the content filter: " + strings.Join(seen, ", ")
}

// refusal names code and parameter of a refused request; the service's words stay out of results.
func refusal(e *model.Error) string {
	return fmt.Sprintf("the service refused the request: code %q, param %q", e.Code, e.Param)
}

// verdictOf says what an error that is no finding means for the message.
func verdictOf(ctx context.Context, err error) worker.Verdict {
	var poison *claimcheck.PoisonError
	var dependency *claimcheck.DependencyError
	var call *model.Error
	switch {
	case errors.As(err, &poison):
		return worker.Reject(string(poison.Reason), described(poison))
	case ctx.Err() != nil:
		return worker.Interrupted(context.Cause(ctx))
	case errors.Is(err, worker.ErrDraining):
		return worker.Interrupted(worker.ErrDraining)
	case errors.As(err, &dependency):
		if dependency.Misconfigured {
			return worker.Misconfig(dependency.Dependency, err)
		}
		return worker.Outage(dependency.Dependency, 0, err)
	case errors.As(err, &call):
		return callVerdict(call)
	}
	return worker.Verdict{Err: err}
}

func callVerdict(e *model.Error) worker.Verdict {
	name := "model:" + e.Host + "/" + e.Deployment
	switch e.Kind {
	case model.Throttled:
		return worker.Throttle(name, e.RetryAfter, e)
	case model.QuotaExhausted, model.Misconfigured:
		return worker.Misconfig(name, e)
	case model.Interrupted:
		return worker.Verdict{Err: e}
	}
	return worker.Outage(name, min(e.RetryAfter, time.Minute), e)
}

// recorded is the verdict of a message whose result is there, whoever wrote it.
func recorded(r *claimcheck.Result) worker.Verdict {
	kind := worker.Failed
	switch r.Outcome {
	case claimcheck.OutcomeSucceeded, claimcheck.OutcomeTruncated, "":
		kind = worker.Answered
	case claimcheck.OutcomeRefused:
		kind = worker.Refused
	}
	return worker.Done(kind, string(r.Outcome), string(r.Reason))
}
