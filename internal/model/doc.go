// Package model makes one chat completion call to one Azure OpenAI deployment and says, from structured fields alone, what came of it.
//
// A [Client] belongs to one deployment. [Client.Complete] makes exactly one HTTP request: the SDK's own retries are off, because
// they would send outside the caller's token limiter, repeat what can never succeed, and pay twice for an answer that was lost on
// the way. It returns an [Answer] when the service decided about this document, and an [*Error] when there is no such decision.
//
// # Classification
//
// [Classify] is a pure function over status, headers and body. It reads the status, error.code, error.type, error.param,
// error.innererror, finish_reason, refusal and the filter flags. It never reads a message: wording changes, is translated, and
// says "quota" for things that have nothing to do with quota. Shapes are those of the documentation ("Content filtering",
// "Manage Azure OpenAI quota", "Structured outputs") and of public reports.
//
// Answers, that is decisions about this document:
//
//	HTTP  what the body says                                            Kind
//	200   finish_reason content_filter, or a filter on the answer       OutputFiltered (partial text is dropped)
//	      says filtered
//	200   message.refusal                                               ModelRefused
//	200   no text, a filter on the prompt says filtered                 PromptFiltered
//	200   finish_reason length                                          Truncated: ReasoningLimit if no text came and reasoning
//	                                                                    used at least 90 % of the output, else OutputLimit
//	200   finish_reason stop with text, or tool calls                   Answered
//	200   no choices, no text, or an unknown finish_reason              Empty (one more call is worth it, not more)
//	400   code content_filter or invalid_prompt, or innererror.code     PromptFiltered
//	      ResponsibleAIPolicyViolation
//
// Errors:
//
//	HTTP  what the body says                                            Kind
//	400   code context_length_exceeded or string_above_max_length       ContextLength
//	413   anything                                                      ContextLength
//	400   code with "image", "audio" or "file" in an invalid_/          InvalidMedia
//	      unsupported_ code
//	400   param is one this package sets from configuration, or the     Misconfigured
//	      role of a message; code unsupported_parameter,
//	      unsupported_value or OperationNotSupported without a param
//	400   any other error object                                        RequestParameter
//	400   no error object                                               Misconfigured: a gateway refuses, and not for this document
//	402   anything                                                      QuotaExhausted
//	401   403, anything                                                 Misconfigured
//	404   error object or {"statusCode":…}                              Misconfigured (DeploymentNotFound, wrong path or version)
//	404   anything else                                                 Unavailable
//	429   code or type insufficient_quota                               QuotaExhausted
//	429   a wait of an hour or more and the request is of the           TooLarge
//	      limit's size
//	429   anything else, with or without an error object                Throttled
//	408   409, 424, 425, 499, 5xx, 529                                  Unavailable
//	3xx   and every other 4xx                                           Misconfigured
//	200   not a completion                                              Unavailable, unless an error object inside has one of the
//	                                                                    codes of the filter, of insufficient_quota or of a 429
//	none  or not a whole response                                       Unavailable, or Interrupted if the caller gave up
//
// 422 is read as 400. Two rules decide doubtful cases. What points to the deployment, its configuration or
// a gateway is never charged to a document: that would empty a backlog into failures for one wrong setting. And nothing is taken for an answer that
// does not say that it is whole.
//
// TooLarge needs evidence, since it ends a document for good. A request larger than the whole tokens-per-minute limit is answered
// with 429 and a wait of a day; so are daily limits of gateways and trial offers. It is TooLarge only if the limit is known (from
// x-ratelimit-limit-tokens, else [Deployment.TPM]) and our estimate is more than half of it; otherwise it is Throttled.
//
// When the content filter itself failed (content_filter_error) the service answers without having filtered. Such an answer keeps
// its kind and carries [Answer.FilterFailed]: whether that is acceptable is the caller's policy.
//
// # What may have been paid
//
// A request that was written and not answered has an unknown outcome: [Error.Sent] says so. It errs on the side of true. A whole
// answer that arrived is returned even if the caller's context ended at the same moment.
package model
