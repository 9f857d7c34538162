// Package infer is the straight line from a claim check to its result: decode, authorise, look for a result that is
// already there, fetch the document, reserve quota, call the model, write the result, say what became of it.
//
// [Handler.Handle] is that line, top to bottom; its steps are one call each. The order is the safety: the result is
// written conditionally before the message is completed, so a redelivery finds it and pays for nothing.
package infer
