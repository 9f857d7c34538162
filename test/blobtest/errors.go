package blobtest

import (
	"encoding/xml"
	"net/http"
	"strings"
	"time"
)

// failure is one answer that is not a success: a status of HTTP with a code of the Blob service ("Status and error
// codes", "Blob service error codes").
type failure struct {
	status  int
	code    string
	message string
	detail  string      // AuthenticationErrorDetail; never a credential
	header  http.Header // what goes with this answer, such as Content-Range
}

// failed is the service's answer for a code.
func failed(code string) *failure {
	status, message := describe(code)
	return &failure{status: status, code: code, message: message}
}

func describe(code string) (status int, message string) {
	switch code {
	case "AuthenticationFailed":
		return http.StatusForbidden, "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature."
	case "AuthorizationPermissionMismatch":
		return http.StatusForbidden, "This request is not authorized to perform this operation using this permission."
	case "InvalidAuthenticationInfo":
		return http.StatusUnauthorized, "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."
	case "NoAuthenticationInformation":
		return http.StatusUnauthorized, "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."
	case "BlobAlreadyExists":
		return http.StatusConflict, "The specified blob already exists."
	case "BlobArchived":
		return http.StatusConflict, "This operation is not permitted on an archived blob."
	case "BlobNotFound":
		return http.StatusNotFound, "The specified blob does not exist."
	case "BlockListTooLong":
		return http.StatusBadRequest, "The block list may not contain more than 50,000 blocks."
	case "ConditionNotMet":
		return http.StatusPreconditionFailed, "The condition specified using HTTP conditional header(s) is not met."
	case "ContainerAlreadyExists":
		return http.StatusConflict, "The specified container already exists."
	case "ContainerNotFound":
		return http.StatusNotFound, "The specified container does not exist."
	case "Crc64Mismatch":
		return http.StatusBadRequest, "The CRC64 value specified in the request did not match with the CRC64 value calculated by the server."
	case "EmptyMetadataKey":
		return http.StatusBadRequest, "The key for one of the metadata key-value pairs is empty."
	case "InternalError":
		return http.StatusInternalServerError, "Server encountered an internal error. Please try again after some time."
	case "InvalidBlobOrBlock":
		return http.StatusBadRequest, "The specified blob or block content is invalid."
	case "InvalidBlobTier":
		return http.StatusBadRequest, "The specified blob tier is invalid."
	case "InvalidBlockList":
		return http.StatusBadRequest, "The specified block list is invalid."
	case "InvalidHeaderValue":
		return http.StatusBadRequest, "The value for one of the HTTP headers is not in the correct format."
	case "InvalidInput":
		return http.StatusBadRequest, "One of the request inputs is not valid."
	case "InvalidMd5":
		return http.StatusBadRequest, "The MD5 value specified in the request is invalid. The MD5 value must be 128 bits and Base64-encoded."
	case "InvalidMetadata":
		return http.StatusBadRequest, "The metadata specified is invalid. It has characters that are not permitted."
	case "InvalidQueryParameterValue":
		return http.StatusBadRequest, "Value for one of the query parameters specified in the request URI is invalid."
	case "InvalidRange":
		return http.StatusRequestedRangeNotSatisfiable, "The range specified is invalid for the current size of the resource."
	case "InvalidResourceName":
		return http.StatusBadRequest, "The specified resource name contains invalid characters."
	case "InvalidUri":
		return http.StatusBadRequest, "The requested URI does not represent any resource on the server."
	case "InvalidXmlDocument":
		return http.StatusBadRequest, "XML specified is not syntactically valid."
	case "Md5Mismatch":
		return http.StatusBadRequest, "The MD5 value specified in the request did not match with the MD5 value calculated by the server."
	case "MetadataTooLarge":
		return http.StatusBadRequest, "The size of the specified metadata exceeds the maximum size permitted."
	case "MissingContentLengthHeader":
		return http.StatusLengthRequired, "The Content-Length header was not specified."
	case "MissingRequiredHeader":
		return http.StatusBadRequest, "An HTTP header that's mandatory for this request is not specified."
	case "MissingRequiredQueryParameter":
		return http.StatusBadRequest, "A required query parameter was not specified for this request."
	case "MultipleConditionHeadersNotSupported":
		return http.StatusBadRequest, "Multiple condition headers are not supported."
	case "NotImplemented":
		return http.StatusNotImplemented, "The requested operation is not implemented on the specified resource."
	case "OutOfRangeInput":
		return http.StatusBadRequest, "One of the request inputs is out of range."
	case "OutOfRangeQueryParameterValue":
		return http.StatusBadRequest, "One of the query parameters specified in the request URI is outside the permissible range."
	case "RequestBodyTooLarge":
		return http.StatusRequestEntityTooLarge, "The request body is too large and exceeds the maximum permissible limit."
	case "ResourceNotFound":
		return http.StatusNotFound, "The specified resource does not exist."
	case "ServerBusy":
		return http.StatusServiceUnavailable, "The server is busy."
	case "UnsatisfiableCondition":
		return http.StatusBadRequest, "The request includes an unsatisfiable condition for this operation."
	}
	return http.StatusInternalServerError, "The request failed."
}

// codeFor is the code the service is most often seen to send with a status; faults that name no code use it.
func codeFor(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "InvalidAuthenticationInfo"
	case http.StatusForbidden:
		return "AuthorizationPermissionMismatch"
	case http.StatusNotFound:
		return "ResourceNotFound"
	case http.StatusConflict:
		return "BlobAlreadyExists"
	case http.StatusPreconditionFailed, http.StatusNotModified:
		return "ConditionNotMet"
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return "ServerBusy"
	case http.StatusBadRequest:
		return "InvalidInput"
	}
	return "InternalError"
}

// response is the answer as the service words it: an XML body, the code also in a header.
func (f *failure) response(requestID string, t time.Time) *response {
	resp := newResponse(f.status)
	for name, values := range f.header {
		resp.header[name] = values
	}
	resp.header.Set("x-ms-error-code", f.code)
	resp.code = f.code
	if f.status == http.StatusUnauthorized {
		resp.header.Set("WWW-Authenticate", "Bearer authorization_uri=https://login.microsoftonline.com/00000000-0000-0000-0000-000000000000/oauth2/authorize resource_id=https://storage.azure.com")
	}
	if f.status == http.StatusNotModified {
		return resp
	}
	var b strings.Builder
	b.WriteString(xmlHeader)
	b.WriteString("<Error><Code>" + f.code + "</Code><Message>")
	text(&b, f.message)
	b.WriteString("\nRequestId:" + requestID + "\nTime:" + t.Format("2006-01-02T15:04:05.0000000Z") + "</Message>")
	if f.detail != "" {
		b.WriteString("<AuthenticationErrorDetail>")
		text(&b, f.detail)
		b.WriteString("</AuthenticationErrorDetail>")
	}
	b.WriteString("</Error>")
	resp.xml(b.String())
	return resp
}

// xmlHeader begins every XML body of the service, byte order mark included.
const xmlHeader = "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?>"

// text writes s as XML character data.
func text(b *strings.Builder, s string) {
	_ = xml.EscapeText(b, []byte(s)) // a strings.Builder does not fail
}
