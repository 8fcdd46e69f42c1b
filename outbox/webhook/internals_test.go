package webhook

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// The vector of the reference libraries of Standard Webhooks.
func TestSignatures(t *testing.T) {
	const secret, want = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	key, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	got := signatures([][]byte{[]byte("another"), key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if first, second, _ := strings.Cut(got, " "); second != want || !strings.HasPrefix(first, "v1,") || first == want {
		t.Errorf("signed as %q", got)
	}
}

func TestEncoded(t *testing.T) {
	for text, want := range map[string]string{
		"0198f7c2-1f6a-7d3e-8a55-0d7d3b1f9a10": "0198f7c2-1f6a-7d3e-8a55-0d7d3b1f9a10",
		"a.b%2E \"\\\n":                        "a%2Eb%252E%20%22%5C%0A",
		"é":                                    "%C3%A9",
	} {
		if got := encode(text, "."); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestIsPublic(t *testing.T) {
	for _, public := range []string{"1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::101:101"} {
		if !isPublic(netip.MustParseAddr(public)) {
			t.Errorf("%s is public", public)
		}
	}
	for _, private := range []string{
		"0.0.0.0", "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "192.0.0.1", "224.0.0.1",
		"240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1",
		"64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001::1", "2001:db8::1", "100::1",
	} {
		if isPublic(netip.MustParseAddr(private)) {
			t.Errorf("%s is not public", private)
		}
	}
	if publicOnly("tcp4", "not an address", nil) == nil {
		t.Error("what cannot be read is let through")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, "0": 0, "-1": 0, "soon": 0, "99999999999999999999999": maxRetryAfter, "1000000": maxRetryAfter,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
