// Package wire reads and writes AMQP 1.0: types, frames, performatives and message sections, from any input without panicking.
//
// Every length, count and depth that comes from the peer is checked before
// anything is allocated for it: compounds nest at most [MaxDepth] deep, a
// compound holds at most [MaxElements] elements, and elements that take no bytes
// (AMQP 1.0 part 1.6, the zero-width encodings) draw on a budget per value.
//
// The frequent performatives (flow, transfer, disposition) are decoded into
// structs the caller reuses; nothing is allocated for them besides what they
// carry. Numbers in comments name parts of "OASIS AMQP Version 1.0".
package wire
