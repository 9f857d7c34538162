package claimcheck

import "slices"

// Outcome says how the work on one document ended. The set is closed: a reader may switch over it.
type Outcome string

// The outcomes that a result can carry.
const (
	// OutcomeSucceeded: the model answered in full.
	OutcomeSucceeded Outcome = "succeeded"
	// OutcomeTruncated: the answer was cut by a token limit. What there is of it is in the result.
	OutcomeTruncated Outcome = "truncated"
	// OutcomeRefused: a content filter or the model itself declined.
	OutcomeRefused Outcome = "refused"
	// OutcomeRejected: the request made from this document can never succeed.
	OutcomeRejected Outcome = "rejected"
	// OutcomeUnreadable: the document cannot be read as text.
	OutcomeUnreadable Outcome = "unreadable"
	// OutcomeExpired: the claim's deadline passed before the model was called.
	OutcomeExpired Outcome = "expired"
	// OutcomeSuperseded: the blob no longer is the version that the claim pins.
	OutcomeSuperseded Outcome = "superseded"
)

// Reason says why an outcome came about, or why there is no result. The set is closed.
type Reason string

// The reasons of results, by outcome. A succeeded result has none.
const (
	ReasonOutputLimit    Reason = "output_limit"    // truncated: max_completion_tokens was reached
	ReasonReasoningLimit Reason = "reasoning_limit" // truncated: reasoning used up the tokens before any text

	ReasonPromptFilter Reason = "prompt_filter" // refused: the content filter blocked the prompt
	ReasonOutputFilter Reason = "output_filter" // refused: the content filter blocked the answer
	ReasonModelRefusal Reason = "model_refusal" // refused: the model declined

	ReasonContextLength    Reason = "context_length"    // rejected: longer than the model's context window
	ReasonTPMLimit         Reason = "tpm_limit"         // rejected: larger than the tokens-per-minute limit
	ReasonRequestParameter Reason = "request_parameter" // rejected: a parameter that the document's own request set
	ReasonInvalidMedia     Reason = "invalid_media"     // rejected: media in the document's own request
	ReasonInvalidOutput    Reason = "invalid_output"    // rejected: the answer does not match the output schema
	ReasonEmptyAnswer      Reason = "empty_answer"      // rejected: no text after a second call
	ReasonOverBudget       Reason = "over_budget"       // rejected: the tenant's budget does not allow it

	ReasonBlobMissing        Reason = "blob_missing"        // unreadable: no such blob, after a short wait
	ReasonBlobArchived       Reason = "blob_archived"       // unreadable: in the archive tier
	ReasonEmptyDocument      Reason = "empty_document"      // unreadable: no bytes, or no text in them
	ReasonTooLarge           Reason = "too_large"           // unreadable: over the document limit
	ReasonUnsupportedType    Reason = "unsupported_type"    // unreadable: not one of the text types
	ReasonUnsupportedCharset Reason = "unsupported_charset" // unreadable: not UTF-8 and no known charset declared
	ReasonCorrupt            Reason = "corrupt"             // unreadable: the declared encoding does not hold

	ReasonDeadline    Reason = "deadline"     // expired
	ReasonETagChanged Reason = "etag_changed" // superseded
)

// The reasons to skip a message without a result: it is complete and was never work.
const (
	ReasonOtherEvent Reason = "other_event" // an event that is not BlobCreated
	ReasonCreateFile Reason = "create_file" // a hierarchical namespace announces an empty file before its content
	ReasonOwnOutput  Reason = "own_output"  // the event is about a result of this system
)

// The reasons to dead-letter a message.
const (
	ReasonMalformed          Reason = "malformed"           // not JSON, or JSON that two readers could read differently
	ReasonUnsupportedBody    Reason = "unsupported_body"    // readable, but no claim
	ReasonEmptyBody          Reason = "empty_body"          // nothing in it
	ReasonUnknownVersion     Reason = "unknown_version"     // a contract version that this reader does not know
	ReasonMissingField       Reason = "missing_field"       // a required field is absent or empty
	ReasonInvalidField       Reason = "invalid_field"       // a field breaks its bounds, or is none of the contract's
	ReasonInlinePayload      Reason = "inline_payload"      // the document is in the message
	ReasonMultipleEvents     Reason = "multiple_events"     // an array with more than one element
	ReasonUnknownTenant      Reason = "unknown_tenant"      // the tenant is not in the catalog
	ReasonUnknownAlias       Reason = "unknown_alias"       // the model alias is not in the catalog
	ReasonForbiddenReference Reason = "forbidden_reference" // the reference may not be followed
	ReasonInvalidName        Reason = "invalid_name"        // the container or blob name is not one
	ReasonDeliveryBudget     Reason = "delivery_budget"     // the last allowed delivery, before starting
)

// Outcomes returns every outcome in the order of the documentation.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeSucceeded, OutcomeTruncated, OutcomeRefused, OutcomeRejected, OutcomeUnreadable, OutcomeExpired, OutcomeSuperseded,
	}
}

// Reasons returns the reasons that may stand beside o in a result. It is empty for OutcomeSucceeded and for an outcome
// that does not exist.
func (o Outcome) Reasons() []Reason {
	switch o {
	case OutcomeTruncated:
		return []Reason{ReasonOutputLimit, ReasonReasoningLimit}
	case OutcomeRefused:
		return []Reason{ReasonPromptFilter, ReasonOutputFilter, ReasonModelRefusal}
	case OutcomeRejected:
		return []Reason{
			ReasonContextLength, ReasonTPMLimit, ReasonRequestParameter, ReasonInvalidMedia, ReasonInvalidOutput,
			ReasonEmptyAnswer, ReasonOverBudget,
		}
	case OutcomeUnreadable:
		return []Reason{
			ReasonBlobMissing, ReasonBlobArchived, ReasonEmptyDocument, ReasonTooLarge, ReasonUnsupportedType,
			ReasonUnsupportedCharset, ReasonCorrupt,
		}
	case OutcomeExpired:
		return []Reason{ReasonDeadline}
	case OutcomeSuperseded:
		return []Reason{ReasonETagChanged}
	}
	return nil
}

// SkipReasons returns the reasons for which a message is completed without a result.
func SkipReasons() []Reason {
	return []Reason{ReasonOtherEvent, ReasonCreateFile, ReasonOwnOutput}
}

// PoisonReasons returns the reasons for which a message is dead-lettered.
func PoisonReasons() []Reason {
	return []Reason{
		ReasonMalformed, ReasonUnsupportedBody, ReasonEmptyBody, ReasonUnknownVersion, ReasonMissingField, ReasonInvalidField,
		ReasonInlinePayload, ReasonMultipleEvents, ReasonUnknownTenant, ReasonUnknownAlias, ReasonForbiddenReference,
		ReasonInvalidName, ReasonDeliveryBudget,
	}
}

// allows reports whether reason may stand beside o: exactly one of its reasons, or none where it has none.
func (o Outcome) allows(reason Reason) bool {
	if o == OutcomeSucceeded {
		return reason == ""
	}
	return slices.Contains(o.Reasons(), reason)
}
