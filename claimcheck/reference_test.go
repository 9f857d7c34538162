package claimcheck_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/google/go-cmp/cmp"

	"millrace/claimcheck"
)

func TestParseReference(t *testing.T) {
	const account = "https://acct.blob.core.windows.net"
	for _, tc := range []struct {
		name, raw string
		want      claimcheck.Reference
		canonical string
	}{
		{"plain", account + "/in/acme/a.txt", claimcheck.Reference{Account: account, Container: "in", Blob: "acme/a.txt"}, account + "/in/acme/a.txt"},
		{"host and scheme in capitals, default port", "HTTPS://Acct.Blob.Core.Windows.NET:443/in/Acme/A.txt",
			claimcheck.Reference{Account: account, Container: "in", Blob: "Acme/A.txt"}, account + "/in/Acme/A.txt"},
		{"other port", account + ":8443/in/a", claimcheck.Reference{Account: account + ":8443", Container: "in", Blob: "a"}, account + ":8443/in/a"},
		{"space, plus, hash", account + "/in/tenant-a/in%20box/a%2Bb%23c.pdf",
			claimcheck.Reference{Account: account, Container: "in", Blob: "tenant-a/in box/a+b#c.pdf"}, account + "/in/tenant-a/in%20box/a%2Bb%23c.pdf"},
		{"question mark", account + "/in/tenant-a/q%3F1.pdf",
			claimcheck.Reference{Account: account, Container: "in", Blob: "tenant-a/q?1.pdf"}, account + "/in/tenant-a/q%3F1.pdf"},
		{"plus is a plus", account + "/in/tenant-a/a+b.pdf",
			claimcheck.Reference{Account: account, Container: "in", Blob: "tenant-a/a+b.pdf"}, account + "/in/tenant-a/a%2Bb.pdf"},
		{"sub-delimiters", account + "/in/tenant-a/a&b;c=d.pdf",
			claimcheck.Reference{Account: account, Container: "in", Blob: "tenant-a/a&b;c=d.pdf"}, account + "/in/tenant-a/a%26b%3Bc%3Dd.pdf"},
		{"the SDK's slash", account + "/in/acme%2Fa%2fb.txt", claimcheck.Reference{Account: account, Container: "in", Blob: "acme/a/b.txt"}, account + "/in/acme/a/b.txt"},
		{"needless encoding", account + "/in/%61cme/%7E.txt", claimcheck.Reference{Account: account, Container: "in", Blob: "acme/~.txt"}, account + "/in/acme/~.txt"},
		{"decomposed", account + "/in/tenant-a/U%cc%88bersicht.pdf",
			claimcheck.Reference{Account: account, Container: "in", Blob: "tenant-a/U\u0308bersicht.pdf"}, account + "/in/tenant-a/U%CC%88bersicht.pdf"},
		{"percent sign", account + "/in/acme/100%25.txt", claimcheck.Reference{Account: account, Container: "in", Blob: "acme/100%.txt"}, account + "/in/acme/100%25.txt"},
		{"harmless twice encoded", account + "/in/acme/100%2541.txt", claimcheck.Reference{Account: account, Container: "in", Blob: "acme/100%41.txt"}, account + "/in/acme/100%2541.txt"},
		{"dots inside", account + "/in/acme/..a/.b/c..d", claimcheck.Reference{Account: account, Container: "in", Blob: "acme/..a/.b/c..d"}, account + "/in/acme/..a/.b/c..d"},
		{"version as the portal writes it", account + "/in/acme/a?versionId=2026-01-10T08:00:00.1234567Z",
			claimcheck.Reference{Account: account, Container: "in", Blob: "acme/a", VersionID: "2026-01-10T08:00:00.1234567Z"},
			account + "/in/acme/a?versionid=2026-01-10T08:00:00.1234567Z"},
		{"snapshot encoded", account + "/in/acme/a?snapshot=2026-01-10T08%3A00%3a00.1234567Z",
			claimcheck.Reference{Account: account, Container: "in", Blob: "acme/a", Snapshot: "2026-01-10T08:00:00.1234567Z"},
			account + "/in/acme/a?snapshot=2026-01-10T08:00:00.1234567Z"},
		{"emulator", "http://127.0.0.1:10000/devstoreaccount1/in/acme/a",
			claimcheck.Reference{Account: "http://127.0.0.1:10000/devstoreaccount1", Container: "in", Blob: "acme/a"}, "http://127.0.0.1:10000/devstoreaccount1/in/acme/a"},
		{"emulator by name, port 80", "http://LOCALHOST:80/devstoreaccount1/in/acme/a",
			claimcheck.Reference{Account: "http://localhost/devstoreaccount1", Container: "in", Blob: "acme/a"}, "http://localhost/devstoreaccount1/in/acme/a"},
		{"emulator on IPv6", "http://[0:0:0:0:0:0:0:1]:10000/devstoreaccount1/in/acme/a",
			claimcheck.Reference{Account: "http://[::1]:10000/devstoreaccount1", Container: "in", Blob: "acme/a"}, "http://[::1]:10000/devstoreaccount1/in/acme/a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := claimcheck.ParseReference(tc.raw)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ParseReference differs (-want +got):\n%s", diff)
			}
			if got.String() != tc.canonical {
				t.Errorf("String() = %s, want %s", got, tc.canonical)
			}
			again, err := claimcheck.ParseReference(got.String())
			if err != nil || again != got {
				t.Errorf("ParseReference(String()) = %+v, %v, want the same", again, err)
			}
			sdk, err := blob.ParseURL(got.String())
			if err != nil || sdk.BlobName != got.Blob && !strings.Contains(got.Account, "localhost") {
				t.Errorf("azblob reads the canonical URL as blob %q, %v, want %q", sdk.BlobName, err, got.Blob)
			}
		})
	}
}

func TestReferenceAccountName(t *testing.T) {
	for raw, want := range map[string]string{
		"https://acct.blob.core.windows.net/in/a":       "acct",
		"http://127.0.0.1:10000/devstoreaccount1/in/a":  "devstoreaccount1",
		"https://acct.z1.blob.storage.azure.net/in/a":   "acct",
		"https://[fd00::1]:10000/devstoreaccount2/in/a": "devstoreaccount2",
	} {
		ref, err := claimcheck.ParseReference(raw)
		if err != nil || ref.AccountName() != want {
			t.Errorf("ParseReference(%s).AccountName() = %q, %v, want %q", raw, ref.AccountName(), err, want)
		}
	}
}

func TestParseReferenceRefuses(t *testing.T) {
	const secret = "U0FNUExFLVNJRy1ET05UTE9H"
	const base = "https://acct.blob.core.windows.net/in/acme/"
	for _, tc := range []struct {
		name, raw string
		reason    claimcheck.Reason
	}{
		{"nothing", "", claimcheck.ReasonForbiddenReference},
		{"no scheme", "acct.blob.core.windows.net/in/acme/a", claimcheck.ReasonForbiddenReference},
		{"no host", "https:///in/acme/a", claimcheck.ReasonForbiddenReference},
		{"file", "file:///etc/passwd", claimcheck.ReasonForbiddenReference},
		{"http", "http://acct.blob.core.windows.net/in/acme/a", claimcheck.ReasonForbiddenReference},
		{"http to a private address", "http://169.254.169.254/metadata/in/a", claimcheck.ReasonForbiddenReference},
		{"short IPv4", "http://127.1/acct/in/a", claimcheck.ReasonForbiddenReference},
		{"decimal IPv4", "https://2130706433/acct/in/a", claimcheck.ReasonForbiddenReference},
		{"octal IPv4", "https://0177.0.0.1/acct/in/a", claimcheck.ReasonForbiddenReference},
		{"IPv6 zone", "http://[::1%25lo]/acct/in/a", claimcheck.ReasonForbiddenReference},
		{"unclosed IPv6", "http://[::1/acct/in/a", claimcheck.ReasonForbiddenReference},
		{"host with trailing dot", "https://acct.blob.core.windows.net./in/acme/a", claimcheck.ReasonForbiddenReference},
		{"host encoded", "https://acct%2eblob.core.windows.net/in/acme/a", claimcheck.ReasonForbiddenReference},
		{"port 0", "https://acct.blob.core.windows.net:0/in/acme/a", claimcheck.ReasonForbiddenReference},
		{"port with zeros", "https://acct.blob.core.windows.net:0443/in/acme/a", claimcheck.ReasonForbiddenReference},
		{"port too large", "https://acct.blob.core.windows.net:65536/in/acme/a", claimcheck.ReasonForbiddenReference},
		{"port empty", "https://acct.blob.core.windows.net:/in/acme/a", claimcheck.ReasonForbiddenReference},
		{"user information", "https://acct.blob.core.windows.net:" + secret + "@evil.example/in/acme/a", claimcheck.ReasonForbiddenReference},
		{"fragment", base + "a#" + secret, claimcheck.ReasonForbiddenReference},
		{"SAS", base + "a?sv=2025-05-05&sp=r&sig=" + secret + "%2Bx%3D", claimcheck.ReasonForbiddenReference},
		{"SAS in capitals", base + "a?SIG=" + secret, claimcheck.ReasonForbiddenReference},
		{"SAS after a version", base + "a?versionid=2026-01-10T08:00:00.1234567Z&sig=" + secret, claimcheck.ReasonForbiddenReference},
		{"other query", base + "a?comp=metadata", claimcheck.ReasonForbiddenReference},
		{"empty query", base + "a?", claimcheck.ReasonForbiddenReference},
		{"two versions", base + "a?versionid=2026-01-10T08:00:00.1234567Z&snapshot=2026-01-10T08:00:00.1234567Z", claimcheck.ReasonForbiddenReference},
		{"version that is none", base + "a?versionid=latest", claimcheck.ReasonForbiddenReference},
		{"version with more", base + "a?versionid=2026-01-10T08:00:00.1234567Z%26comp=list", claimcheck.ReasonForbiddenReference},
		{"no container", "https://acct.blob.core.windows.net/", claimcheck.ReasonInvalidName},
		{"no blob", "https://acct.blob.core.windows.net/in", claimcheck.ReasonInvalidName},
		{"no blob but a slash", "https://acct.blob.core.windows.net/in/", claimcheck.ReasonInvalidName},
		{"root container", "https://acct.blob.core.windows.net/$root/acme/a", claimcheck.ReasonInvalidName},
		{"logs", "https://acct.blob.core.windows.net/$logs/acme/a", claimcheck.ReasonInvalidName},
		{"container in capitals", "https://acct.blob.core.windows.net/In/acme/a", claimcheck.ReasonInvalidName},
		{"container encoded", "https://acct.blob.core.windows.net/%69n/acme/a", claimcheck.ReasonInvalidName},
		{"double slash", "https://acct.blob.core.windows.net//in/acme/a", claimcheck.ReasonInvalidName},
		{"container with two hyphens", "https://acct.blob.core.windows.net/a--b/acme/a", claimcheck.ReasonInvalidName},
		{"emulator account", "http://127.0.0.1:10000/../in/a", claimcheck.ReasonInvalidName},
		{"dot segments", base + "../tenant-b/secret.txt", claimcheck.ReasonInvalidName},
		{"dot segments encoded", base + "%2e%2e%2ftenant-b/secret.txt", claimcheck.ReasonInvalidName},
		{"half encoded", base + ".%2E/tenant-b/secret.txt", claimcheck.ReasonInvalidName},
		{"single dot", base + "./a", claimcheck.ReasonInvalidName},
		{"encoded twice", base + "%252e%252e%252ftenant-b", claimcheck.ReasonInvalidName},
		{"encoded three times", base + "%25252e%25252e%25252ftenant-b", claimcheck.ReasonInvalidName},
		{"encoded twice with bad encodings around", base + "%25zz%252f%252e%252e%252f", claimcheck.ReasonInvalidName},
		{"backslash", base + `..\tenant-b`, claimcheck.ReasonInvalidName},
		{"backslash encoded", base + "a%5Cb", claimcheck.ReasonInvalidName},
		{"backslash encoded twice", base + "a%255Cb", claimcheck.ReasonInvalidName},
		{"NUL", base + "a%00b", claimcheck.ReasonInvalidName},
		{"line end", base + "a%0D%0Ab", claimcheck.ReasonInvalidName},
		{"C1", base + "a%C2%85b", claimcheck.ReasonInvalidName},
		{"trailing dot", base + "a.", claimcheck.ReasonInvalidName},
		{"folder with trailing dot", base + "a./b", claimcheck.ReasonInvalidName},
		{"trailing slash", base + "a/", claimcheck.ReasonInvalidName},
		{"empty segment", base + "a//b", claimcheck.ReasonInvalidName},
		{"not UTF-8", base + "a%FFb", claimcheck.ReasonInvalidName},
		{"bad encoding", base + "a%2", claimcheck.ReasonInvalidName},
		{"bad digits", base + "a%zz", claimcheck.ReasonInvalidName},
		{"space", base + "a b", claimcheck.ReasonInvalidName},
		{"not ASCII", base + "ü", claimcheck.ReasonInvalidName},
		{"control character", base + "a\x00", claimcheck.ReasonInvalidName},
		{"long name", base + strings.Repeat("x", 1020), claimcheck.ReasonInvalidName},
		{"many segments", base + strings.Repeat("x/", 260) + "x", claimcheck.ReasonInvalidName},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := claimcheck.ParseReference(tc.raw)
			wantPoison(t, err, tc.reason, "blob")
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

func FuzzPolicy(f *testing.F) {
	const account = "https://acct.blob.core.windows.net"
	policy := claimcheck.Policy{
		Containers: map[string][]string{
			"acme": {account + "/in", "http://127.0.0.1:10000/devstoreaccount1/in"}, "tenant-b": {account + "/in"},
		},
		Results: account + "/results", AllowLoopbackHTTP: true,
	}
	for _, seed := range []string{
		account + "/in/acme/a.txt", account + "/in/acme/../tenant-b/a", account + "/in/acme/%2e%2e/tenant-b/a", account + "/in/acme%2Fa",
		account + "/in/acme/%252e%252e/tenant-b/a", account + "/in/acme/%25%32%65%25%32%65/a", account + "/results/acme/a",
		"http://127.0.0.1:10000/devstoreaccount1/in/acme/a", "https://acct.blob.core.windows.net@evil/in/acme/a",
		account + "/in/acme/a?versionid=2026-01-10T08:00:00.1234567Z", "HTTPS://ACCT.blob.core.windows.net:443/in/acme/a%20%25%2B",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		claim := sound()
		claim.Blob = raw
		ref, err := policy.Check(claim)
		if err != nil {
			return
		}
		canonical := ref.String()
		listed := strings.HasPrefix(canonical, account+"/in/acme/") || strings.HasPrefix(canonical, "http://127.0.0.1:10000/devstoreaccount1/in/acme/")
		if !listed {
			t.Fatalf("Check(%q) allowed %s", raw, canonical)
		}
		if again, err := claimcheck.ParseReference(canonical); err != nil || again != ref {
			t.Fatalf("ParseReference(%s) = %+v, %v, want %+v", canonical, again, err, ref)
		}
		// net/url, which the SDK uses, must see the same host and name.
		if u, err := url.Parse(canonical); err != nil || u.User != nil || u.Fragment != "" || !strings.HasSuffix(u.Path, "/"+ref.Container+"/"+ref.Blob) {
			t.Fatalf("net/url reads %s as %+v, %v", canonical, u, err)
		}
		// However often somebody on the way decodes the name again, and whoever resolves its dots, it stays in the folder.
		for name := ref.Blob; ; {
			u := url.URL{Scheme: "https", Host: "h", Path: "/" + name}
			for _, separator := range []string{"/", `\`} {
				clean := u.ResolveReference(&url.URL{Path: strings.ReplaceAll(u.Path, separator, "/")}).Path
				if !strings.HasPrefix(clean, "/acme/") || len(clean) == len("/acme/") {
					t.Fatalf("Check(%q) allowed %q, which resolves to %q", raw, name, clean)
				}
			}
			next, err := url.PathUnescape(name)
			if err != nil || next == name {
				break
			}
			name = next
		}
	})
}
