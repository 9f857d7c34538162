package model

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
)

// transportError is the error for a call that brought no response although nobody gave it up.
func (c *Client) transportError(err error, sent bool) *Error {
	if token, ok := errors.AsType[*tokenError](err); ok {
		return c.tokenFailure(token)
	}
	// *url.Error repeats the URL in its text.
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return c.fail(Unavailable, transportCode(err, sent), sent, err)
}

// transportCode names err by its types.
func transportCode(err error, sent bool) string {
	if errors.Is(err, errResponseTooLarge) {
		return "response_too_large"
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "dns"
	}
	if isTLS(err) {
		return "tls"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		if sent {
			return "header_timeout"
		}
		return "connect_timeout"
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection_lost"
	}
	return "transport"
}

func isTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return certificate || alert || record || errors.Is(err, http.ErrSchemeMismatch)
}
